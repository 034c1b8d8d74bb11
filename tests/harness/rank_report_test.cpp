// What is said of ranks that failed.
#include "ddp/ranks/rank_report.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "harness/error_of.h"
#include "support/ranks.h"

namespace ddp {
namespace {

using testing::expect_contains;
using testing::run_plain_ranks;

std::string described(const RankBody& body) {
  return run_plain_ranks({.world_size = 1}, body).describe();
}

[[gnu::noinline]] void view_wrongly() { at::ones({3}).view({7}); }

TEST(RankReports, ExceptionsNameTheirPlaceAndOperator) {
  const std::string here = "at tests/harness/rank_report_test.cpp:";
  const std::string standard =
      described([](RankContext&) { static_cast<void>(std::vector<int>().at(3)); });
  expect_contains(standard, here);
  expect_contains(standard, " in operator()\n");
  const std::string torch = described([](RankContext&) { view_wrongly(); });
  expect_contains(torch, here);
  expect_contains(torch, "view_wrongly, which called aten::view\n");
}

// libtorch's own "not implemented" goes on with a line for each of its backends.
TEST(RankReports, AMissingKernelIsNoStubAndReportedBriefly) {
  const RankReports reports = run_plain_ranks(
      {.world_size = 1}, [](RankContext&) { at::cumsum(at::ones({3}).to_sparse(), 0); });
  ASSERT_FALSE(reports.ok());
  EXPECT_FALSE(reports.ranks[0].not_implemented);
  const std::string text = reports.describe();
  expect_contains(text, "Could not run 'aten::cumsum");
  expect_contains(text, "more lines ...]");
  EXPECT_LT(std::ranges::count(text, '\n'), 20) << text;
}

TEST(RankReports, RanksThatFailAlikeAreReportedOnce) {
  const std::string text = run_plain_ranks({.world_size = 4}, [](RankContext& context) {
                             TORCH_CHECK(context.rank == 2, "alike");
                             pause();
                           }).describe();
  EXPECT_EQ(text.find("alike"), text.rfind("alike")) << text;
  expect_contains(text, "the same in rank ");
  expect_contains(text, "rank 2 gave up");
}

TEST(RankReports, PrintsAreShownWithTheirFirstAndLastLines) {
  const RankReports reports = run_plain_ranks({.world_size = 1}, [](RankContext&) {
    for (int line = 1; line <= 30; ++line) {
      std::cout << "line " << line << "\n";
    }
    std::cout.flush();
    std::fputs("no newline", stderr);
    TORCH_CHECK(false, "enough");
  });
  const std::string text = reports.describe();
  expect_contains(text, "rank 0 printed:\n    | line 1\n");
  expect_contains(text,
                  "    | line 10\n    [... 11 more lines with VERBOSE=1 ...]\n    | line 22\n");
  expect_contains(text, "    | no newline\n");
}

}  // namespace
}  // namespace ddp
