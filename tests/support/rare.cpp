#include "support/rare.h"

namespace ddp::testing {

Rare rare_of(const World& world) {
  Rare rare;
  if (world.ranks == 1) {
    rare.insert(kOneRank);
  }
  if (world.ranks > 2) {
    rare.insert(kManyRanks);
  }
  if (!world.subgroups.empty()) {
    rare.insert(kGroups);
  }
  return rare;
}

}  // namespace ddp::testing
