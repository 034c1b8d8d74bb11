#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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
  /// Withholds completions while any rank is in backward, so that what waits there is found.
  bool hold = true;
  /// Whether a collective is complete when its launch returns, as on a network that is much faster
  /// than its ranks. Excludes `hold`.
  bool prompt = false;
  /// Whether every operation takes ten minutes: a wait with a shorter limit fails, and it is not
  /// complete until it is waited for, or asked so often that nothing else can be meant.
  bool slow = false;
  std::optional<Failure> failure = {};
  /// Whether buffers in flight are touched on purpose, at moments that the referee draws, which the
  /// ranks' AccessWatch must find: see Evidence::doubts. It lives until the scenario goes to
  /// Phase::kCanary, the last of these moments.
  bool touch_on_purpose = false;
  /// Whether callbacks of a future run only after who waits for its operation has gone on, as a network
  /// may have it. Otherwise they have run when a wait returns.
  bool late_callbacks = false;
};

/// The ranks of a group, in its order.
std::vector<int> members_of(const World& world, int group);

}  // namespace ddp
