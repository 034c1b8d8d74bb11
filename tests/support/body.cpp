#include "support/body.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

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

std::vector<Body> named(const std::vector<Body>& bodies, const std::vector<std::string>& names,
                        const std::string& form) {
  std::vector<Body> chosen;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(bodies, form + name, &Body::name);
    TORCH_CHECK(found != bodies.end(), "there is no body \"", form, name, "\"");
    chosen.push_back(*found);
  }
  return chosen;
}

std::vector<Body> charged_to(const std::vector<Body>& bodies, const std::string& test) {
  std::vector<Body> chosen;
  std::ranges::copy_if(bodies, std::back_inserter(chosen),
                       [&](const Body& body) { return body.charged_to == test; });
  return chosen;
}

std::vector<Body> joined(const std::vector<std::vector<Body>>& lists) {
  std::vector<Body> all;
  for (const std::vector<Body>& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

Predicate all_of(std::vector<Predicate> predicates) {
  return [predicates = std::move(predicates)](const Evidence& evidence) {
    for (const Predicate& holds : predicates) {
      if (Finding finding = holds(evidence); !finding.empty()) {
        return finding;
      }
    }
    return Finding();
  };
}

}  // namespace ddp::testing
