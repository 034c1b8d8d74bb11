#include "support/rare.h"

#include <cstring>

namespace ddp::testing {

namespace {

constexpr const char* kTold = "rare: ";

}  // namespace

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

void tell_rare(Client& client, const std::string& rare) { client.fact(kTold + rare, 1); }

Rare told_rare(const Evidence& evidence) {
  Rare rare;
  for (const SeenList& said : evidence.of) {
    for (const Seen& seen : said) {
      if (seen.kind == EventKind::kFact && seen.text.starts_with(kTold)) {
        rare.insert(seen.text.substr(std::strlen(kTold)));
      }
    }
  }
  return rare;
}

}  // namespace ddp::testing
