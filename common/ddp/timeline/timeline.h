#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ddp/backends/operation_backend.h"
#include "ddp/backends/tensor_names.h"
#include "ddp/ranks/fork_ranks.h"

namespace ddp {

enum class SpanKind {
  kCompute,        // the rank itself was busy, or waited inside one of its functions
  kCommunication,  // an operation used the network
  kInstant,        // an instant, such as the end of a step
  kPhase,          // a part of a step, around what happens in it
};

/// What one rank did in one interval of time.
struct Span {
  SpanKind kind = SpanKind::kCompute;
  std::string name;        // "backward fc2", "all-reduce of the gradient of fc1.weight"
  std::string group = "";  // what it is part of, such as "overlapped"; may be empty
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  /// For an operation only: when the rank launched it, and its payload.
  std::int64_t launched_ns = 0;
  std::int64_t bytes = 0;
  std::int64_t operation = -1;  // its number in its rank, where that is known
};

/// What one rank computed and communicated, and when; write_chrome_trace() makes a file of it.
/// ComputeScope and TimelineBackend add spans in real time; for those in virtual time see
/// VirtualTime. All of them accept a null timeline and then draw nothing.
///
/// Any thread may call all functions.
class Timeline {
 public:
  /// An operation between launch() and complete().
  using Launched = std::int64_t;

  /// Adds names for the tensors of later operations.
  void add_names(const std::vector<NamedTensor>& tensors);

  /// Sets the group of later spans.
  void set_group(const std::string& group);

  /// Sets the zero of time for later spans.
  void set_origin(std::int64_t ns);

  /// Adds a compute span or an instant to the current group.
  void add(SpanKind kind, const std::string& name, std::int64_t begin_ns, std::int64_t end_ns);

  /// Adds an operation that was launched at `launched_ns`. It is drawn once it is complete.
  Launched launch(const Operation& operation, std::int64_t launched_ns);

  /// Notes that the operation used the network from `begin_ns` to `end_ns`. Does nothing if it is
  /// complete already, or was dropped by take_spans().
  void complete(Launched operation, std::int64_t begin_ns, std::int64_t end_ns);

  /// Returns when all launched collectives are complete. In real time, call it before take_spans():
  /// a thread that waits for an operation by its future may continue before complete() is called.
  /// Messages are not awaited, because nothing completes them unless somebody asks.
  void settle();

  /// Returns all complete spans, relative to their origins, in the order in which they were added,
  /// and empties the timeline. Incomplete operations are dropped.
  std::vector<Span> take_spans();

 private:
  struct Entry {
    Span span;
    std::int64_t origin_ns = 0;
    bool complete = false;
    bool is_message = false;
  };
  Launched append(Span span, bool complete, bool is_message = false);

  std::mutex mutex_;
  std::condition_variable completed_;
  TensorNames names_;
  std::string group_;
  std::int64_t origin_ns_ = 0;
  std::deque<Entry> entries_;
  Launched first_ = 0;  // the number of entries_.front()
};

/// Real time in nanoseconds since some instant, which is the same for all processes of a machine.
std::int64_t steady_ns();

/// Draws its own lifetime as a compute span in real time, if there is a timeline.
class ComputeScope {
 public:
  ComputeScope(std::shared_ptr<Timeline> timeline, std::string name)
      : timeline_(std::move(timeline)), name_(std::move(name)), begin_ns_(steady_ns()) {}
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;
  ~ComputeScope() {
    if (timeline_) {
      timeline_->add(SpanKind::kCompute, name_, begin_ns_, steady_ns());
    }
  }

 private:
  const std::shared_ptr<Timeline> timeline_;
  const std::string name_;
  const std::int64_t begin_ns_;
};

/// Draws every operation in real time (steady_ns()), from its launch to its completion, and the
/// launch itself as computing, since it keeps the caller busy. The real beginning of an operation
/// cannot be observed: its span includes the time that it waits in a queue.
///
/// Completion is the instant when the backend completes the operation's future, on its own thread,
/// whether or not anyone waits: so it is right for c10d::Reducer, which waits by futures. Gloo's
/// messages have no future; they complete when a wait returns or a poll returns true. CPU tensors
/// only: the host does not see completions on a GPU.
class TimelineBackend : public BackendDecorator {
 public:
  TimelineBackend(BackendPtr inner, std::shared_ptr<Timeline> timeline);

  WorkPtr run(Operation operation) override;

 private:
  const std::shared_ptr<Timeline> timeline_;
};

/// The origin of a timeline in real time, on which all ranks agree. If all ranks run on one machine
/// (Placement::one_machine), they share a clock and one origin. Otherwise each rank's origin is its
/// own clock's time at the end of a barrier, so ranks are aligned only up to a few network
/// latencies. Collective.
std::int64_t agree_on_origin(const ProcessGroupPtr& group, bool one_machine);

/// One rank's part of a timeline.
struct RankSpans {
  int rank = 0;
  std::vector<Span> spans;
};

/// Writes the ranks' spans as a Chrome trace: JSON for https://ui.perfetto.dev and
/// chrome://tracing. Each pair of group and rank is a process, such as "overlapped, rank 0", with
/// one row for computing and as many for communication as there are simultaneous operations. An
/// arrow leads from an operation's launch to the operation. Times are in microseconds, with
/// nanosecond digits.
///
/// The file appears whole or not at all. If it cannot be written, throws std::runtime_error, which
/// names the file and the reason.
void write_chrome_trace(const std::vector<RankSpans>& ranks, const std::filesystem::path& file);

/// Returns the spans of all ranks on rank 0, and nothing on the others. They are sent through the
/// store by which the ranks found each other, not over the network that was measured. Collective.
std::vector<RankSpans> gather_spans(const std::vector<Span>& spans, const RankContext& context);

}  // namespace ddp
