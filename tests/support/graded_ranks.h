#pragma once

#include "support/plain_ranks.h"

namespace ddp::testing {

/// run_ranks() for tests in which ranks are expected to misuse the group or to fail: races and
/// missing waits are left for the body to examine, and the reports are returned.
inline RankReports run_graded_ranks(const ForkOptions& options,
                                    const std::function<void(Rank&)>& body) {
  return run_plain_ranks(options, [&](RankContext& context) {
    RankOptions rank_options;
    rank_options.world_size = context.world_size;
    // Not destroyed: a group would wait for operations that may never complete.
    Rank* rank = std::make_unique<Rank>(context, rank_options).release();
    body(*rank);
    finish_together(context);
  });
}

/// The same for ranks that must finish with all expectations met.
inline void expect_graded_ranks_pass(int world_size, const std::function<void(Rank&)>& body) {
  expect_no_failures(run_graded_ranks({.world_size = world_size}, body));
}

}  // namespace ddp::testing
