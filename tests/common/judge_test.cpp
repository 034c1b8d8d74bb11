// What a failure of a graded test shows, and how many scenarios are judged.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iostream>
#include <memory>

#include "common/checks.h"
#include "ddp/collectives.h"
#include "ddp/referee/client.h"
#include "grader/compare.h"
#include "grader/run_output.h"
#include "grader/scenario.h"
#include "grader/settings.h"

namespace ddp::testing {

namespace {

// Any library that can be loaded will do in the place of a stage's: the scenarios here call none.
class Judge : public ::testing::Test {
 protected:
  void SetUp() override {
    Dl_info here{};
    ASSERT_NE(dladdr(reinterpret_cast<const void*>(&printed_below), &here), 0);
    settings().stage_library = here.dli_fname;
  }
  void TearDown() override { settings().stage_library.clear(); }
};

Scenario printing_scenario(const std::string& name) {
  const auto run = [](Client& client) {
    std::cout << "cout of rank " << client.rank() << "\n";
    std::printf("printf of rank %d\n", client.rank());
  };
  return {.name = name, .world = {.ranks = 2}, .run = run, .charged_to = "nobody"};
}

TEST_F(Judge, AFailureShowsWhatItsRankPrinted) {
  EXPECT_NONFATAL_FAILURE(
      judge({printing_scenario("prints")}, [](const Evidence&) { return "rank 1, step 0: wrong"; }),
      "rank 1, step 0: wrong\nrank 1 printed:\n    | cout of rank 1\n    | printf of rank 1\n");
}

TEST_F(Judge, APassedBodysPrintsAreKeptForVerbose) {
  ::testing::internal::CaptureStdout();
  judge({printing_scenario("prints and passes")}, [](const Evidence&) { return ""; });
  const std::string output = ::testing::internal::GetCapturedStdout();
  expect_contains(output, "rank 0 in \"prints and passes\":\ncout of rank 0\n");
  expect_contains(output, "printf of rank 1\n");
}

// What it does after its scenario, to show that it lives, is nothing that a student has written.
TEST_F(Judge, ARankThatHasReturnedIsSaidToHave) {
  const auto run = [](Client& client) {
    if (client.rank() == 0) {
      all_reduce(at::zeros({2}), make_group(client.shared_from_this()));
    }
  };
  const Scenario scenario = {
      .name = "rank 1 does not join", .run = run, .charged_to = "ARankThatHasReturnedIsSaidToHave"};
  EXPECT_NONFATAL_FAILURE(judge({scenario}, [](const Evidence&) { return ""; }),
                          "last seen: has returned; no operation launched");
}

// An all-reduce: whether the callback of its future ran before wait() returned.
Scenario scenario_with_a_callback() {
  const auto run = [](Client& client) {
    const WorkPtr work = all_reduce_async(at::ones({2}), make_group(client.shared_from_this()));
    const auto future = work->getFuture();
    const auto ran = std::make_shared<std::atomic<bool>>(false);
    future->addCallback([ran](c10::ivalue::Future&) { *ran = true; });
    work->wait();
    client.fact("late", *ran ? 0 : 1);
    future->wait();
  };
  return {.name = "a callback", .world = {.ranks = 2}, .run = run, .charged_to = "nobody"};
}

TEST_F(Judge, WhatTakesFuturesAlsoRunsWithLateCallbacks) {
  EXPECT_NONFATAL_FAILURE(
      judge({scenario_with_a_callback()},
            [](const Evidence& evidence) {
              return std::ranges::any_of(
                         evidence.of[1],
                         [](const Seen& seen) { return seen.text == "late" && seen.number == 1; })
                         ? "rank 1: wrong"
                         : "";
            }),
      "in \"a callback\" (2 ranks), late callbacks: rank 1: wrong\nIn this run a future's "
      "callbacks");
}

const char* holds_on_two(const Evidence& evidence) {
  return evidence.world.ranks == 2 ? "" : "wrong";
}

// The messages of a claim.
std::vector<std::string> failures_in(const std::vector<Scenario>& scenarios,
                                     const Predicate& violation = holds_on_two) {
  using Reporter = ::testing::ScopedFakeTestPartResultReporter;
  ::testing::TestPartResultArray failures;
  const Reporter reporter(Reporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
  judge(scenarios, violation);
  std::vector<std::string> texts;
  for (int i = 0; i < failures.size(); ++i) {
    const std::string_view text = failures.GetTestPartResult(i).message();
    texts.emplace_back(
        text.substr(0, text.find_last_not_of('\n') + 1));  // GoogleTest 1.13 adds one
  }
  return texts;
}

Scenario scenario_on(int ranks, const std::string& name, const EdgeCases& edge_cases) {
  Scenario scenario = printing_scenario(name);
  scenario.world.ranks = ranks;
  scenario.edge_cases = edge_cases;
  return scenario;
}

TEST_F(Judge, TheScenarioWithTheFewestEdgeCasesIsNamed) {
  const auto texts = failures_in({scenario_on(3, "two edge cases", {"one", "two"}),
                                  scenario_on(2, "holds", {}), scenario_on(3, "no edge case", {})});
  ASSERT_EQ(texts.size(), 1);
  EXPECT_TRUE(texts[0].starts_with("Failed\nin \"no edge case\" (3 ranks): wrong")) << texts[0];
  EXPECT_TRUE(texts[0].ends_with("passes in 1 of 3 runs; also fails in \"two edge cases\""))
      << texts[0];
}

TEST_F(Judge, WhatCannotBeJudgedIsTheScenariosFailure) {
  const auto throws_on_three = [](const Evidence& evidence) {
    TORCH_CHECK(evidence.world.ranks < 3, "no such index");
    return "";
  };
  const auto texts =
      failures_in({scenario_on(3, "cannot", {}), scenario_on(2, "can", {})}, throws_on_three);
  ASSERT_EQ(texts.size(), 1);
  expect_contains(texts[0], "\"cannot\" (3 ranks): what the ranks told cannot be judged: no such");
  expect_contains(texts[0], "passes in 1 of 2 runs");
}

// A stage's code may have numbered what it launches as it likes.
TEST_F(Judge, OperationsWithAGapInTheirNumbersAreDrawn) {
  const auto run = [](Client& client) {
    const EventData barrier{
        .kind = EventKind::kLaunch, .type = c10d::OpType::BARRIER, .operation = 5};
    client.launch({barrier}, [](char*) {});
    client.await(5);
  };
  EXPECT_NONFATAL_FAILURE(judge({{.name = "a gap", .run = run, .charged_to = "nobody"}},
                                [](const Evidence&) { return "wrong"; }),
                          "in \"a gap\" (2 ranks): wrong");
}

TEST_F(Judge, WhatIsSaidOfANameThatNoSolutionTellsIsWithheld) {
  const auto tells = [](const std::string& name) {
    return Scenario{.name = std::to_string(name.size()) + " letters",
                    .run = [name](Client& client) { client.fact(name, 1); },
                    .charged_to = "nobody"};
  };
  const auto says_it = [](const Evidence& evidence) {
    const auto& said = evidence.of[0];
    const auto told = std::ranges::find(said, EventKind::kFact, &Seen::kind);
    return Finding(told == said.end() ? "rank 0: nothing" : "rank 0: " + told->text);
  };
  settings().withhold = true;
  const auto texts = failures_in({tells("what it has read")}, says_it);
  settings().withhold = false;
  ASSERT_EQ(texts.size(), 1);
  EXPECT_EQ(texts[0].find("what it has read"), std::string::npos) << texts[0];
  expect_contains(texts[0], "the test's claim does not hold (what the ranks told is withheld)");
  expect_contains(failures_in({tells("it is said")}, says_it).at(0), "rank 0: it is said");
}

TEST_F(Judge, EachEdgeCaseHasAFailureThatNamesIt) {
  const auto texts =
      failures_in({scenario_on(2, "ordinary", {}), scenario_on(3, "an edge case", {"an edge case"}),
                   scenario_on(3, "another", {"another"}),
                   scenario_on(3, "both", {"an edge case", "another"})});
  ASSERT_EQ(texts.size(), 2);
  EXPECT_TRUE(texts[0].ends_with("\nedge case: an edge case")) << texts[0];
  EXPECT_TRUE(texts[1].ends_with("\nedge case: another")) << texts[1];
}

TEST_F(Judge, BrieflyTheFirstScenarioThatBreaksAClaimIsEnough) {
  const std::vector<Scenario> scenarios = {scenario_on(3, "is wrong", {}),
                                           scenario_on(3, "is wrong, too", {})};
  settings().brief = true;
  EXPECT_EQ(failures_in(scenarios).at(0).find(" runs"), std::string::npos);
  settings().brief = false;
  expect_contains(failures_in(scenarios).at(0), "passes in 0 of 2 runs");
}

TEST(Comparison, DoublesThatDifferInTheLastBitAreShownApart) {
  const at::Tensor one = at::ones({1}, at::kDouble);
  const std::string said = is_bitwise_equal({.name = "x"}, one + 0x1p-52, one).message();
  expect_contains(said, "got 1.0000000000000002, expected 1");
}

TEST(Prints, OfAnotherRankAreBetterThanNone) {
  RankReports reports;
  reports.ranks.resize(2);
  EXPECT_EQ(printed_below("rank 0: wrong", reports), "");
  reports.ranks[1].rank = 1;
  reports.ranks[1].log = "only here";
  EXPECT_EQ(printed_below("rank 0: wrong", reports), "\nrank 1 printed:\n    | only here\n");
  EXPECT_EQ(printed_below("all ranks are wrong", reports), printed_below("rank 7", reports));
}

}  // namespace

}  // namespace ddp::testing
