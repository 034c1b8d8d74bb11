#include "support/ranks.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "ddp/backends/cuda.h"
#include "ddp/backends/limited_link.h"
#include "ddp/backends/shared_memory_backend.h"
#include "ddp/ranks/stage_library.h"
#include "support/grading.h"
#include "support/trace.h"

namespace ddp::testing {

namespace {

constexpr auto kBackendTimeout = std::chrono::seconds(60);  // the ranks' deadline comes first
constexpr std::size_t kFailuresShown = 3;
// The prefix of a rank's message to the parent that is not a failure.
constexpr std::string_view kMeasured = "measured: ";

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

// In a rank, GoogleTest's own listeners are copies of the parent's: they must not print.
void forward_failures(const RankContext& context) {
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailureForwarder(context));  // takes ownership
}

// One failure of the test for each distinct message, with the ranks that sent it.
void report_messages(const RankReports& reports) {
  std::map<std::string, std::vector<int>> ranks_by_message;
  std::vector<std::string> in_order;
  for (const RankReport& report : reports.ranks) {
    for (const std::string& message : report.messages) {
      if (collect_spans(report.rank, message)) {
        continue;
      }
      if (message.starts_with(kMeasured)) {
        note_measured(message.substr(kMeasured.size()));
        continue;
      }
      auto& ranks = ranks_by_message[message];
      if (ranks.empty()) {
        in_order.push_back(message);
      }
      if (ranks.empty() || ranks.back() != report.rank) {  // a rank may send it several times
        ranks.push_back(report.rank);
      }
    }
  }
  for (std::size_t i = 0; i < in_order.size() && i < kFailuresShown; ++i) {
    std::ostringstream who;
    for (const int rank : ranks_by_message[in_order[i]]) {
      who << (who.tellp() > 0 ? ", " : "") << rank;
    }
    ADD_FAILURE() << "world size " << reports.ranks.size() << ", rank " << who.str() << ": "
                  << in_order[i];
  }
  if (in_order.size() > kFailuresShown) {
    ADD_FAILURE() << "and " << in_order.size() - kFailuresShown << " more like these";
  }
}

// A stage that hangs once usually hangs everywhere: later tests give up sooner.
void shorten_deadline() {
  settings().deadline = std::min(settings().deadline, std::chrono::milliseconds(3'000));
}

void report(const RankReports& reports) {
  report_messages(reports);
  if (reports.ok()) {
    return;
  }
  const RankReport& culprit = reports.ranks[reports.culprit];
  if (culprit.not_implemented) {
    note_todo(culprit.reason);
    return;
  }
  ADD_FAILURE() << "world size " << reports.ranks.size() << ": " << reports.describe();
  if (culprit.outcome == RankOutcome::kTimedOut) {
    shorten_deadline();
  }
}

// Reports misuse by the ranks as failures of the test.
void expect_clean(const CheckedBackend& checked) {
  for (const std::string& race : checked.races()) {
    ADD_FAILURE() << race;
  }
  for (const std::string& operation : checked.pending()) {
    ADD_FAILURE() << "nobody waited for " << operation;
  }
}

void run_graded(RankContext& context, const RankOptions& options,
                const std::function<void(Rank&)>& body) {
  auto rank = std::make_unique<Rank>(context, options);
  try {
    const std::optional<AccessWatch> watch = options.watch_accesses && rank->checked() != nullptr
                                                 ? std::make_optional<AccessWatch>(*rank->checked())
                                                 : std::nullopt;
    body(*rank);
  } catch (...) {
    // The rank ends at once. Its group must not be torn down first: that would wait for operations
    // that may never complete.
    static_cast<void>(rank.release());
    throw;
  }
  if (rank->checked() != nullptr) {
    expect_clean(*rank->checked());
  }
  rank->send_timeline();
  finish_together(context);
}

ForkOptions fork_options(int world_size) {
  ForkOptions options;
  options.world_size = world_size;
  options.deadline = settings().deadline;
  return options;
}

}  // namespace

Rank::Rank(RankContext& context, const RankOptions& options) : context_(context) {
  Blackboard& board = *context.board;
  board.set_activity(context.rank, "connects to the other ranks");
  recorder_ = c10::make_intrusive<RecordingBackend>(decorate(make_backend(options), options),
                                                    names_, &board);
  group_ = make_process_group(recorder_, context.store);
  if (network_ != nullptr) {
    timeline_ = make_world_timeline(world_size());
    clock_->draw_on(timeline_);
    network_->draw_on(timeline_);
  }
  board.set_activity(context.rank, "runs its own code; no operation launched yet");
}

// Virtual time needs no real network; real time and GPUs do.
BackendPtr Rank::make_backend(const RankOptions& options) {
  if (settings().device.is_cpu() && !options.real_time) {
    return c10::make_intrusive<SharedMemoryBackend>(*context_.exchange, rank(), world_size());
  }
  return make_device_backend(settings().device, context_, kBackendTimeout);
}

BackendPtr Rank::decorate(BackendPtr backend, const RankOptions& options) {
  if (options.real_time) {
    return c10::make_intrusive<LimitedLink>(backend, options.network);
  }
  if (settings().device.is_cpu()) {
    checked_ = c10::make_intrusive<CheckedBackend>(backend, names_, *context_.board);
    backend = checked_;
  }
  network_ =
      c10::make_intrusive<SimulatedNetwork>(backend, clock_, options.network, *context_.board);
  return network_;
}

void Rank::settle() {
  if (checked_ != nullptr) {
    checked_->settle();
  }
}

void Rank::name(const std::vector<NamedTensor>& tensors) {
  names_->add(tensors);
  if (timeline_) {
    timeline_->add_names(tensors);
  }
}

void Rank::send_timeline() {
  if (!timeline_) {
    return;
  }
  try {
    network_->step_end();  // finds out when the last operations ended
  } catch (const PeerGone&) {
    // Another rank did not launch them all, which the test has already reported.
  }
  send_spans(context_, timeline_->take_spans());
}

void Rank::report_measured(const std::string& text) {
  context_.send_to_parent(std::string(kMeasured) + text);
}

void finish_together(RankContext& context) {
  context.board->set_phase(context.rank, RankPhase::kFinished);
  context.board->wait_until([&] {
    for (int other = 0; other < context.world_size; ++other) {
      if (context.board->phase(other) < RankPhase::kFinished) {
        return false;
      }
    }
    return true;
  });
}

RankReports run_plain_ranks(const ForkOptions& options, const RankBody& body) {
  return fork_ranks(options, [&](RankContext& context) {
    forward_failures(context);
    if (settings().device.is_cuda()) {
      load_cuda();
      settings().device = device_of_rank(at::kCUDA, context);
    }
    body(context);
  });
}

void in_child(const std::function<void()>& body) {
  report(run_plain_ranks(fork_options(1), [&](RankContext&) { body(); }));
}

void run_ranks(const RankOptions& options, const std::function<void(Rank&)>& body) {
  if (settings().device.is_cuda() && !why_no_gpu().empty()) {
    GTEST_SKIP() << why_no_gpu();
  }
  count_world();
  report(run_plain_ranks(fork_options(options.world_size), [&](RankContext& context) {
    if (!settings().stage_library.empty()) {
      load_stage_library(settings().stage_library);
    }
    run_graded(context, options, body);
  }));
}

void run_worlds(std::initializer_list<int> world_sizes, const std::function<void(Rank&)>& body,
                RankOptions options) {
  for (const int world_size : world_sizes) {
    options.world_size = world_size;
    run_ranks(options, body);
    if (::testing::Test::HasFailure() || ::testing::Test::IsSkipped()) {
      return;
    }
  }
}

}  // namespace ddp::testing
