#pragma once

#include <gtest/gtest.h>

#include "support/ranks.h"

namespace ddp::testing {

/// run_plain_ranks() for ranks that are expected to finish, and to find nothing wrong.
inline void expect_plain_ranks_pass(const ForkOptions& options, const RankBody& body) {
  const RankReports reports = run_plain_ranks(options, body);
  EXPECT_TRUE(reports.ok()) << reports.describe();
  for (const RankReport& report : reports.ranks) {
    for (const std::string& failure : report.messages) {
      ADD_FAILURE() << "rank " << report.rank << " of " << options.world_size << ": " << failure;
    }
  }
}

}  // namespace ddp::testing
