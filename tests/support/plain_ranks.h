#pragma once

#include <gtest/gtest.h>

#include "support/ranks.h"

namespace ddp::testing {

/// All ranks finished, and no expectation failed in any of them.
inline void expect_no_failures(const RankReports& reports) {
  EXPECT_TRUE(reports.ok()) << reports.describe();
  for (const RankReport& report : reports.ranks) {
    for (const std::string& failure : report.messages) {
      ADD_FAILURE() << "rank " << report.rank << " of " << reports.ranks.size() << ": " << failure;
    }
  }
}

/// run_plain_ranks() for ranks that are expected to finish without a failed expectation.
inline void expect_plain_ranks_pass(const ForkOptions& options, const RankBody& body) {
  expect_no_failures(run_plain_ranks(options, body));
}

}  // namespace ddp::testing
