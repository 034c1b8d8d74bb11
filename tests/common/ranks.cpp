#include "common/ranks.h"

#include <gtest/gtest.h>

#include <sstream>

#include "ddp/backends/cuda.h"
#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"
#include "grader/grading.h"
#include "grader/settings.h"

namespace ddp::testing {

namespace {

// Sends a rank's failed expectations to the parent: "file:line\nmessage".
class FailureForwarder : public ::testing::EmptyTestEventListener {
 public:
  explicit FailureForwarder(const RankContext& context) : send_(context.send_to_parent) {}

  void OnTestPartResult(const ::testing::TestPartResult& part) override {
    if (part.failed()) {
      std::ostringstream text;
      text << failure_text(part) << "\n  (" << (part.file_name() ? part.file_name() : "?") << ":"
           << part.line_number() << ")";
      send_(text.str());
    }
  }

 private:
  std::function<void(const std::string&)> send_;
};

void prepare(const RankContext& context) {
  // In a rank, GoogleTest's own listeners are copies of the parent's: they must not print.
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailureForwarder(context));  // takes ownership
  if (settings().device.is_cuda()) {
    load_cuda();
    settings().device = device_of_rank(at::kCUDA, context);
  }
}

// All ranks finished, and no expectation failed in any of them.
void expect_no_failures(const RankReports& reports) {
  for (const RankReport& report : reports.ranks) {
    for (const std::string& failure : report.messages) {
      ADD_FAILURE() << "rank " << report.rank << " of " << reports.ranks.size() << ": " << failure;
    }
  }
  EXPECT_TRUE(reports.ok()) << reports.ranks.size() << " ranks: " << reports.describe();
}

ForkOptions fork_options() {
  ForkOptions options;
  options.world_size = 1;
  options.deadline = settings().deadline;
  return options;
}

}  // namespace

Rank::Rank(Client& client) : client_(client), group_(make_group(client.shared_from_this())) {}

Evidence run_ranks(const World& world, const std::function<void(Rank&)>& function) {
  Evidence evidence =
      run_refereed(world, fork_options(), [&](Client& client, RankContext& context) {
        prepare(context);
        Rank rank(client);
        function(rank);
      });
  expect_no_failures(evidence.reports);
  return evidence;
}

void run_worlds(std::initializer_list<int> world_sizes,
                const std::function<void(Rank&)>& function) {
  for (const int ranks : world_sizes) {
    run_ranks({.ranks = ranks}, function);
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
}

std::vector<Seen> launches_of(const Evidence& evidence, int rank) {
  std::vector<Seen> launches;
  for (const Seen& seen : evidence.of[rank]) {
    if (seen.kind == EventKind::kLaunch) {
      launches.push_back(seen);
    }
  }
  return launches;
}

RankReports run_plain_ranks(const ForkOptions& options, const RankFunction& function) {
  return fork_ranks(options, [&](RankContext& context) {
    prepare(context);
    function(context);
  });
}

void expect_plain_ranks_pass(const ForkOptions& options, const RankFunction& function) {
  expect_no_failures(run_plain_ranks(options, function));
}

void in_child(const std::function<void()>& function) {
  ForkOptions options = fork_options();
  options.deadline = std::chrono::minutes(1);  // a machine may be busy, and nothing here is to hang
  expect_plain_ranks_pass(options, [&](RankContext&) { function(); });
}

}  // namespace ddp::testing
