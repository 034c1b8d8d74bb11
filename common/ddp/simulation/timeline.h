#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ddp/backends/tensor_names.h"

namespace ddp {

struct Operation;

enum class SpanKind {
  kCompute,        // the rank itself was busy, or waited inside one of its functions
  kCommunication,  // an operation used the network
  kInstant,        // an instant, such as the end of a step
};

/// What one rank did from one moment to another.
struct Span {
  SpanKind kind = SpanKind::kCompute;
  std::string name;        // "backward fc2", "all-reduce of the gradient of fc1.weight"
  std::string group = "";  // what it is part of, such as "overlapped"; may be empty
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  /// Only of an operation: when the rank launched it, and its payload.
  std::int64_t launched_ns = 0;
  std::int64_t bytes = 0;
};

/// What one rank computed and communicated, and when: a picture that ddp/simulation/timeline_file.h writes for
/// a viewer. Whoever knows times adds spans: simulated_compute() and SimulatedNetwork in virtual
/// time, ComputeScope and TimelineBackend in real time. All of them take a null timeline for "do
/// not draw".
///
/// All functions may be called by any thread.
class Timeline {
 public:
  /// An operation between launch() and complete().
  using Launched = std::int64_t;

  /// Names the tensors of operations from now on.
  void add_names(const std::vector<NamedTensor>& tensors);

  /// What begins from now on belongs to this group.
  void set_group(const std::string& group);

  /// The time that is zero for all that begins from now on.
  void set_origin(std::int64_t ns);

  /// A span of computing, or a moment. Its group is that of now.
  void add(SpanKind kind, const std::string& name, std::int64_t begin_ns, std::int64_t end_ns);

  /// An operation that was launched at `launched_ns`. It is drawn once it is complete.
  Launched launch(const Operation& operation, std::int64_t launched_ns);

  /// It used the network from `begin_ns` to `end_ns`. Said again, or of an operation that
  /// take_spans() has dropped, it does nothing.
  void complete(Launched operation, std::int64_t begin_ns, std::int64_t end_ns);

  /// Returns when all collectives launched are complete: in real time, before take_spans(). Who
  /// waits for an operation by its future may go on before its completion is noted. Messages are
  /// not waited for, as nothing completes them if nobody asks.
  void settle();

  /// Everything up to now, counted from its origin, in the order in which it began or was added.
  /// The timeline is empty afterwards; operations that are not complete are dropped.
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

/// Real time in nanoseconds since some moment, which is the same for all processes of a machine.
std::int64_t steady_ns();

}  // namespace ddp
