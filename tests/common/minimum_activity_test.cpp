// What a rank has to have told of, before anything that it told is judged.
#include "grader/minimum_activity.h"

#include <gtest/gtest.h>

#include <fstream>
#include <initializer_list>
#include <string>

#include "common/checks.h"
#include "common/temporary_folder.h"
#include "grader/settings.h"

namespace ddp::testing {

namespace {

class MinimumActivity : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    settings().minimum_activity = (folder_ / "known.json").string();
    std::ofstream(settings().minimum_activity)
        << R"({"three steps": [{"phase 3": 2, "value: gradient": 1}, "edge case: known"],
               "a call that throws": [{"phase 3": 1, "exception: a call": 1, "fact in phase 0: none": 1,
                                       "fact in phase 0: called": 1, "fact in phase 3: called": 1}]})";
  }
  void TearDown() override {
    settings().minimum_activity.clear();
    FolderTest::TearDown();
  }
};

Seen told(EventKind kind, const std::string& text, Phase phase = Phase::kSetup) {
  Seen seen;
  seen.kind = kind;
  seen.text = text;
  seen.place.phase = phase;
  return seen;
}

// What is said of a rank that has told of this.
std::string said_of(std::initializer_list<Seen> told, const std::string& scenario = "three steps") {
  Evidence evidence;
  evidence.world.ranks = 1;
  evidence.reports.ranks.resize(1);
  evidence.of = {told};
  evidence.doubts = {""};
  require_activity(evidence, scenario);
  return evidence.reports.describe();
}

TEST_F(MinimumActivity, EachNameIsDueAndNoOtherMakesUpForIt) {
  const Seen backward = told(EventKind::kPhase, "", Phase::kBackward);
  const Seen gradient = told(EventKind::kValue, "gradient");
  const Seen nameless = told(EventKind::kValue, "");
  const Seen threw = told(EventKind::kThrew, "");
  EXPECT_EQ(said_of({backward, backward, gradient}), "");
  EXPECT_EQ(said_of({gradient, backward, nameless, backward, gradient}), "") << "in any order";
  expect_contains(said_of({backward, backward, nameless, nameless, threw, threw}),
                  "\"value: gradient\" 1 were due, and there were 0");
  expect_contains(said_of({backward, gradient, gradient}),
                  "\"phase 3\" 2 were due, and there were 1");
  expect_contains(said_of({}), "were due, and there were 0");
}

// So a stage cannot say, of its own, what makes a claim ask for less.
TEST_F(MinimumActivity, WhatOnlyTheTestsTellIsNotTheStages) {
  const Seen backward = told(EventKind::kPhase, "", Phase::kBackward);
  const Seen gradient = told(EventKind::kValue, "gradient");
  const auto with = [&](const Seen& more) { return said_of({backward, backward, gradient, more}); };
  EXPECT_EQ(with(told(EventKind::kFact, "none")), "");
  EXPECT_EQ(with(told(EventKind::kFact, "called", Phase::kFinish)), "") << "from calls, too";
  EXPECT_EQ(with(told(EventKind::kFact, "no name of theirs", Phase::kFinish)), "");
  expect_contains(with(told(EventKind::kFact, "none", Phase::kFinish)), "only the tests tell");
  expect_contains(with(backward), "\"phase 3\" more often than the tests do");
  expect_contains(with(told(EventKind::kPhase, "", Phase::kSetup)), "\"phase 0\" more often");
  const Seen threw = told(EventKind::kThrew, "a call");
  EXPECT_EQ(said_of({threw, backward, backward}, "a call that throws"), "") << "or it goes on";
}

TEST_F(MinimumActivity, NamesAreKnownFromAnyScenario) {
  const auto known = [](const Seen& seen) {
    Evidence evidence;
    evidence.of = {{seen}};
    return tells_only_known_names(evidence);
  };
  EXPECT_TRUE(known(told(EventKind::kFact, "called", Phase::kSetup)));
  EXPECT_TRUE(known(told(EventKind::kLaunch, "of an operation, which the referee looks at")));
  EXPECT_FALSE(known(told(EventKind::kFact, "what it has read")));
  EXPECT_FALSE(known(told(EventKind::kValue, "what it has read")));
  EXPECT_FALSE(known(told(EventKind::kThrew, "what it has read")));
}

}  // namespace

}  // namespace ddp::testing
