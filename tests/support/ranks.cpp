#include "support/ranks.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "ddp/backends/cuda.h"
#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"
#include "support/grading.h"
#include "support/settings.h"

namespace ddp::testing {

namespace {

constexpr std::size_t kFailuresShown = 3;

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

// One failure of the test for each distinct message, with the ranks that sent it.
void report_messages(const RankReports& reports) {
  std::map<std::string, std::string> ranks_by_message;
  std::vector<std::string> in_order;
  for (const RankReport& report : reports.ranks) {
    for (const std::string& message : report.messages) {
      std::string& ranks = ranks_by_message[message];
      if (ranks.empty()) {
        in_order.push_back(message);
      }
      const std::string rank = std::to_string(report.rank);
      if (!ranks.ends_with(rank)) {  // it may send it several times
        ranks += (ranks.empty() ? "" : ", ") + rank;
      }
    }
  }
  for (std::size_t i = 0; i < in_order.size() && i < kFailuresShown; ++i) {
    ADD_FAILURE() << "world size " << reports.ranks.size() << ", rank "
                  << ranks_by_message[in_order[i]] << ": " << in_order[i];
  }
  if (in_order.size() > kFailuresShown) {
    ADD_FAILURE() << "and " << in_order.size() - kFailuresShown << " more like these";
  }
}

void report(const RankReports& reports) {
  report_messages(reports);
  if (!reports.ok() && reports.ranks[reports.culprit].not_implemented) {
    note_todo(reports.ranks[reports.culprit].reason);
  } else if (!reports.ok()) {
    ADD_FAILURE() << "world size " << reports.ranks.size() << ": " << reports.describe();
  }
}

ForkOptions fork_options() {
  ForkOptions options;
  options.world_size = 1;
  options.deadline = settings().deadline;
  return options;
}

}  // namespace

Rank::Rank(Client& client) : client_(client), group_(make_group(client.shared_from_this())) {}

Evidence run_ranks(const World& world, const std::function<void(Rank&)>& body) {
  Evidence evidence =
      run_refereed(world, fork_options(), [&](Client& client, RankContext& context) {
        prepare(context);
        Rank rank(client);
        body(rank);
      });
  report(evidence.reports);
  return evidence;
}

void run_worlds(std::initializer_list<int> world_sizes, const std::function<void(Rank&)>& body) {
  for (const int ranks : world_sizes) {
    run_ranks({.ranks = ranks}, body);
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

RankReports run_plain_ranks(const ForkOptions& options, const RankBody& body) {
  return fork_ranks(options, [&](RankContext& context) {
    prepare(context);
    body(context);
  });
}

void in_child(const std::function<void()>& body) {
  report(run_plain_ranks(fork_options(), [&](RankContext&) { body(); }));
}

}  // namespace ddp::testing
