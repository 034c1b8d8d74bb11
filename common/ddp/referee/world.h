#pragma once

#include <vector>

namespace ddp {

/// The ranks of a run and how the network treats them.
struct World {
  int ranks = 2;
  /// The ranks of each further group: `subgroups[i]` are those of group i + 1. Group 0 has all.
  std::vector<std::vector<int>> subgroups;
  /// Whether nothing completes as long as a rank is in backward: what waits there is found.
  bool hold = true;
  /// Whether every operation takes a second: a wait with a shorter limit fails, and it is not complete
  /// until it is waited for, or asked so often that nothing else can be meant.
  bool slow = false;
};

/// The ranks of a group, in its order.
std::vector<int> members_of(const World& world, int group);

}  // namespace ddp
