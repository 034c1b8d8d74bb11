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
        << R"({"three steps": [{"phase 3": 2, "value: gradient": 1}, "edge case: known"]})";
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
std::string said_of(std::initializer_list<Seen> told) {
  Evidence evidence;
  evidence.world.ranks = 1;
  evidence.reports.ranks.resize(1);
  evidence.of = {told};
  evidence.doubts = {""};
  require_activity(evidence, "three steps");
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

}  // namespace

}  // namespace ddp::testing
