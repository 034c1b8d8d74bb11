#include "ddp/simulation/timeline_backend.h"

#include <ATen/ATen.h>

#include <utility>

#include "ddp/collectives.h"

namespace ddp {
namespace {

// Notes when a wait or a poll shows that an operation is complete: a callback of its future may come
// long after, on a thread that waits for a core.
class TimedWork : public WorkDecorator {
 public:
  TimedWork(WorkPtr inner, std::function<void()> complete)
      : WorkDecorator(std::move(inner)), complete_(std::move(complete)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = inner()->wait(timeout);
    complete_();
    return done;
  }

  bool isCompleted() override {
    const bool done = inner()->isCompleted();
    if (done) {
      complete_();
    }
    return done;
  }

 private:
  const std::function<void()> complete_;
};

}  // namespace

TimelineBackend::TimelineBackend(BackendPtr inner, std::shared_ptr<Timeline> timeline)
    : BackendDecorator(std::move(inner)), timeline_(std::move(timeline)) {}

WorkPtr TimelineBackend::run(Operation operation) {
  const std::int64_t launched_ns = steady_ns();
  WorkPtr work = operation.start(inner(), operation);
  timeline_->add(SpanKind::kCompute, "launch", launched_ns, steady_ns());
  // After the start, so that looking up its name does not delay it.
  const Timeline::Launched launched = timeline_->launch(operation, launched_ns);
  const auto complete = [timeline = timeline_, launched, launched_ns] {
    timeline->complete(launched, launched_ns, steady_ns());
  };
  if (!operation.is_message()) {  // for whoever waits for the future
    work->getFuture()->addCallback([complete](c10::ivalue::Future&) { complete(); },
                                   /*uses_future=*/false);
  }
  return c10::make_intrusive<TimedWork>(std::move(work), complete);
}

std::int64_t agree_on_origin(const ProcessGroupPtr& group, bool one_machine) {
  barrier(group);
  std::int64_t origin = steady_ns();
  if (one_machine) {
    const at::Tensor latest = at::full({1}, origin, at::kLong);
    all_reduce(latest, group, ReduceOp::kMax);
    origin = latest.item<std::int64_t>();
  }
  return origin;
}

}  // namespace ddp
