#pragma once

#include <memory>

#include "ddp/backends/backend_decorator.h"
#include "ddp/simulation/timeline.h"

namespace ddp {

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

}  // namespace ddp
