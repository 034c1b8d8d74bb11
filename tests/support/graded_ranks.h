#pragma once

#include "support/plain_ranks.h"

namespace ddp::testing {

/// run_ranks() for ranks whose misuse or failure is the point of the test: races and forgotten
/// waits are left for the body to look at, and the reports come back.
inline RankReports run_graded_ranks(const ForkOptions& options,
                                    const std::function<void(Rank&)>& body) {
  return run_plain_ranks(options, [&](RankContext& context) {
    RankOptions rank_options;
    rank_options.world_size = context.world_size;
    // Not destroyed: a group would wait for operations that may never end.
    Rank* rank = std::make_unique<Rank>(context, rank_options).release();
    body(*rank);
    finish_together(context);
  });
}

/// The same for ranks that must come to their end with all expectations met.
inline void expect_graded_ranks_pass(int world_size, const std::function<void(Rank&)>& body) {
  expect_no_failures(run_graded_ranks({.world_size = world_size}, body));
}

}  // namespace ddp::testing
