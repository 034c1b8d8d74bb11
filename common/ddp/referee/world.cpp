#include "ddp/referee/world.h"

#include <numeric>

namespace ddp {

std::vector<int> members_of(const World& world, int group) {
  if (group > 0) {
    return world.subgroups.at(group - 1);
  }
  std::vector<int> all(world.ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace ddp
