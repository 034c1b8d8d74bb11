#pragma once

#include <memory>

#include "ddp/backends/backend_decorator.h"
#include "ddp/simulation/timeline.h"

namespace ddp {

/// Draws every operation in real time (steady_ns()), from its launch to its completion, and the
/// launch itself as computing, since it keeps the caller busy. When an operation really began
/// nobody can see: what waits in a queue before it is part of the span.
///
/// Completion is the moment when the backend completes the operation's future, on its own thread,
/// whether somebody waits or not: so it is right for c10d::Reducer, which waits by futures. Gloo's
/// messages have no future; they are complete when somebody has waited for them, or has asked and
/// heard that they are. CPU tensors only: what completes on a GPU the host does not see.
class TimelineBackend : public BackendDecorator {
 public:
  TimelineBackend(BackendPtr inner, std::shared_ptr<Timeline> timeline);

  WorkPtr run(Operation operation) override;

 private:
  const std::shared_ptr<Timeline> timeline_;
};

/// The origin of a timeline in real time, on which all ranks agree. Where all run on one machine
/// (Placement::one_machine) they share a clock, and so one origin. Otherwise each rank's origin is
/// its own clock's time at the end of a barrier, so that ranks are aligned no better than they
/// leave it: by some network latencies. Collective.
std::int64_t agree_on_origin(const ProcessGroupPtr& group, bool one_machine);

}  // namespace ddp
