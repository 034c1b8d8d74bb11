// What a failure of a graded test shows, and how many bodies are judged.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <iostream>

#include "ddp/collectives.h"
#include "ddp/referee/client_group.h"
#include "support/body.h"
#include "support/price.h"
#include "support/prints.h"
#include "support/settings.h"

namespace ddp::testing {

namespace {

// Any library that can be loaded will do in the place of a stage's: the bodies here call none.
class Judge : public ::testing::Test {
 protected:
  void SetUp() override {
    Dl_info here{};
    ASSERT_NE(dladdr(reinterpret_cast<const void*>(&printed_below), &here), 0);
    settings().stage_library = here.dli_fname;
  }
  void TearDown() override { settings().stage_library.clear(); }
};

Body printing_body(const std::string& name) {
  const auto run = [](Client& client) {
    std::cout << "cout of rank " << client.rank() << "\n";
    std::printf("printf of rank %d\n", client.rank());
  };
  return {.name = name, .world = {.ranks = 2}, .run = run, .charged_to = "nobody"};
}

TEST_F(Judge, AFailureShowsWhatItsRankPrinted) {
  EXPECT_NONFATAL_FAILURE(
      judge({printing_body("prints")}, [](const Evidence&) { return "rank 1, step 0: wrong"; }),
      "rank 1, step 0: wrong\nrank 1 printed:\n    | cout of rank 1\n    | printf of rank 1\n");
}

TEST_F(Judge, APassedBodysPrintsAreKeptForVerbose) {
  ::testing::internal::CaptureStdout();
  judge({printing_body("prints and passes")}, [](const Evidence&) { return ""; });
  const std::string output = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(output.find("rank 0 in \"prints and passes\":\ncout of rank 0\n"), std::string::npos)
      << output;
  EXPECT_NE(output.find("printf of rank 1\n"), std::string::npos) << output;
}

// What it does after its body, to show that it lives, is nothing that a student has written.
TEST_F(Judge, ARankThatHasReturnedIsSaidToHave) {
  const auto run = [](Client& client) {
    if (client.rank() == 0) {
      all_reduce(at::zeros({2}), make_group(client.shared_from_this()));
    }
  };
  const Body body = {
      .name = "rank 1 does not join", .run = run, .charged_to = "ARankThatHasReturnedIsSaidToHave"};
  EXPECT_NONFATAL_FAILURE(judge({body}, [](const Evidence&) { return ""; }),
                          "last seen: has returned; no operation launched");
}

// The failures of a claim that each of these bodies breaks.
int failures_of(const std::vector<Body>& bodies) {
  using Reporter = ::testing::ScopedFakeTestPartResultReporter;
  ::testing::TestPartResultArray failures;
  const Reporter reporter(Reporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
  judge(bodies, [](const Evidence&) { return "wrong"; });
  return failures.size();
}

TEST_F(Judge, BrieflyTheFirstBodyThatBreaksAClaimIsEnough) {
  const std::vector<Body> bodies = {printing_body("is wrong"), printing_body("is wrong, too")};
  settings().brief = true;
  EXPECT_EQ(failures_of(bodies), 1);
  settings().brief = false;
  EXPECT_EQ(failures_of(bodies), 2) << "the second says how many more there are";
}

// The messages of a claim that holds on two ranks alone.
std::vector<std::string> failures_in(const std::vector<Body>& bodies) {
  using Reporter = ::testing::ScopedFakeTestPartResultReporter;
  ::testing::TestPartResultArray failures;
  const Reporter reporter(Reporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
  judge(bodies, [](const Evidence& evidence) { return evidence.world.ranks == 2 ? "" : "wrong"; });
  std::vector<std::string> texts;
  for (int i = 0; i < failures.size(); ++i) {
    texts.emplace_back(failures.GetTestPartResult(i).message());
  }
  return texts;
}

Body body_on(int ranks, const std::string& name, const Rare& rare) {
  Body body = printing_body(name);
  body.world.ranks = ranks;
  body.rare = rare;
  return body;
}

TEST_F(Judge, TheBodyWithTheLeastThatIsRareIsNamedFirst) {
  const auto texts = failures_in({body_on(3, "two rare things", {"one", "two"}),
                                  body_on(2, "holds", {}), body_on(3, "nothing rare", {})});
  ASSERT_EQ(texts.size(), 2);
  EXPECT_NE(texts[0].find("in \"nothing rare\" (3 ranks): wrong"), std::string::npos) << texts[0];
  EXPECT_NE(texts[1].find("holds in 1 of 3 runs; it is broken in \"two rare things\", too"),
            std::string::npos)
      << texts[1];
}

TEST_F(Judge, SomethingRareIsSaidAndChargedOnce) {
  const auto texts =
      failures_in({body_on(2, "ordinary", {}), body_on(3, "a rare thing", {"a rare thing"})});
  ASSERT_EQ(texts.size(), 2);
  EXPECT_NE(texts[1].find("what these runs have and others have not: a rare thing"),
            std::string::npos)
      << texts[1];
}

TEST_F(Judge, WhatIsChargedAlreadyIsNotChargedAgain) {
  const Body body = body_on(3, "a rare thing again", {"a rare thing", "another"});
  charge({"a rare thing"}, "another_test");
  EXPECT_TRUE(failures_in({body_on(2, "ordinary again", {}), body}).empty());
  EXPECT_FALSE(failures_in({body}).empty()) << "nothing is left to judge";
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
