#include "bodies.h"
#include "uses.h"

// Ranks in several groups, and several forwards before a backward.

namespace ddp::testing {

namespace {

const char* const kGroupsTest = "output_is_batch_norm_of_the_whole_batch";
const char* const kForwardsTest = "training_on_many_ranks_is_training_on_one";

// Each use has the next group. A rank may be in several, in each at another place.
void groups_in_turns(Uses& uses) {
  for (int step = 0; step < 9; ++step) {
    uses.run({.group = static_cast<GroupIndex>((step * 2 + step / 4 + 2) % 4)});
  }
}

// Several forwards go before the first backward, which begins with the last.
void forwards_first(Uses& uses, const std::vector<UseOptions>& options) {
  std::vector<Use*> all;
  for (const UseOptions& of_use : options) {
    all.push_back(uses.add(of_use));
    if (all.back() != nullptr) {
      all.back()->forward();
    }
  }
  for (auto use = all.rbegin(); use != all.rend(); ++use) {
    if (*use != nullptr) {
      (*use)->backward();
    }
  }
}

// A rank's first group is its own.
Body alone_first() {
  Body body = body_of("a group of one rank, then of two", 2, kGroupsTest, [](Uses& uses) {
    for (const GroupIndex group : {1, 2, 0, 1, 2}) {
      uses.run({.group = group});
    }
  });
  body.world.subgroups = {{0}, {1}};
  body.rare.insert(kGroups);
  return body;
}

Body in_groups(const std::string& name, const std::string& charged_to,
               const std::function<void(Uses&)>& run) {
  Body body = body_of(name, 4, charged_to, run);
  body.world.subgroups = {{0, 1, 2}, {3, 1}, {1, 0}};
  body.rare.insert(kGroups);
  return body;
}

}  // namespace

const std::vector<Body>& groups() {
  static const std::vector<Body> bodies = {
      in_groups("four groups in turns", kGroupsTest, groups_in_turns), alone_first()};
  return bodies;
}

const std::vector<Body>& interleaved() {
  static const std::vector<Body> bodies = {
      body_of("forwards first", 2, kForwardsTest,
              [](Uses& uses) {
                std::vector<UseOptions> many(40);
                many.push_back({.shape = {4, 3}});
                forwards_first(uses, many);
              }),
      in_groups("forwards of several groups first", kForwardsTest, [](Uses& uses) {
        forwards_first(uses,
                       {{.group = 1}, {.shape = {4, 3}, .group = 2}, {.group = 1}, {.group = 0}});
      })};
  return bodies;
}

}  // namespace ddp::testing
