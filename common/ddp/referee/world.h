#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ddp/referee/schedule.h"

namespace ddp {

/// Communication that fails, on all ranks alike.
struct Failure {
  std::int32_t step = -1;      // of the place in which it is launched
  std::int32_t operation = 0;  // its number among those that a rank launches in that step
  bool at_launch = false;      // the launch throws, and not the wait
};

/// The ranks of a run and how the network treats them.
struct World {
  int ranks = 2;
  /// The ranks of each further group: `subgroups[i]` are those of group i + 1. Group 0 has all.
  std::vector<std::vector<int>> subgroups;
  /// Whether nothing completes as long as a rank is in backward: what waits there is found.
  bool hold = true;
  /// Whether a collective is complete when its launch returns, as on a network that is much faster
  /// than its ranks. Excludes `hold`.
  bool prompt = false;
  /// Whether every operation takes ten minutes: a wait with a shorter limit fails, and it is not
  /// complete until it is waited for, or asked so often that nothing else can be meant.
  bool slow = false;
  std::optional<Failure> failure = {};
  /// Which of the orders that a network allows this one has.
  Schedule schedule = {};
};

/// The ranks of a group, in its order.
std::vector<int> members_of(const World& world, int group);

}  // namespace ddp
