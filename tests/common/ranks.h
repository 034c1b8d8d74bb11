#pragma once

#include <functional>
#include <initializer_list>

#include "ddp/ranks/fork_ranks.h"
#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"

// Ranks with expectations, for tests of the lab itself. Those that fail in a rank fail the test, with
// file, line and rank; so does a rank that dies, hangs or throws. Graded tests have none: see
// grader/scenario.h.

namespace ddp::testing {

/// A rank of a refereed world.
class Rank {
 public:
  explicit Rank(Client& client);

  int rank() const { return client_.rank(); }
  int world_size() const { return client_.world().ranks; }
  const ProcessGroupPtr& group() const { return group_; }
  Client& client() { return client_; }

 private:
  Client& client_;
  ProcessGroupPtr group_;
};

/// Runs `function` as every rank of a world; returns what they did.
Evidence run_ranks(const World& world, const std::function<void(Rank&)>& function);

/// run_ranks() for one number of ranks after another; stops at the first that fails.
void run_worlds(std::initializer_list<int> world_sizes, const std::function<void(Rank&)>& function);

/// What a rank launched.
std::vector<Seen> launches_of(const Evidence& evidence, int rank);

/// Runs `function` in one forked process without a process group: for tests that use tensors, which the
/// parent may not use.
void in_child(const std::function<void()>& function);

/// Runs `function` in ranks without a network. Returns the reports; failed expectations are in their
/// messages.
RankReports run_plain_ranks(const ForkOptions& options, const RankFunction& function);

/// The same for ranks that are expected to finish without a failed expectation.
void expect_plain_ranks_pass(const ForkOptions& options, const RankFunction& function);

}  // namespace ddp::testing
