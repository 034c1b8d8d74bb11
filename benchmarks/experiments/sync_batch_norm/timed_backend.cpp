#include "experiments/sync_batch_norm/timed_backend.h"

#include <ATen/ATen.h>

#include <thread>
#include <utility>

namespace ddp {
namespace {

using Timers = std::vector<std::unique_ptr<DeviceTimer>>;

// Stops a timer when the operation has been waited for, and hands the timer over.
class TimedWork : public WorkDecorator {
 public:
  TimedWork(WorkPtr inner, std::unique_ptr<DeviceTimer> timer, std::shared_ptr<Timers> timers,
            bool on_cpu)
      : WorkDecorator(std::move(inner)),
        timer_(std::move(timer)),
        timers_(std::move(timers)),
        on_cpu_(on_cpu) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = inner()->wait(timeout);
    if (timer_) {
      timer_->stop();
      timers_->push_back(std::move(timer_));
      let_go();
    }
    return done;
  }

 private:
  // The backend's thread holds the operation, and its tensors, a moment longer. They are not memory
  // of the layer, and would count or not by chance.
  void let_go() const {
    while (on_cpu_ && inner().use_count() > 1) {
      std::this_thread::yield();
    }
  }

  std::unique_ptr<DeviceTimer> timer_;  // null once it has been handed over
  const std::shared_ptr<Timers> timers_;
  const bool on_cpu_;
};

}  // namespace

TimedBackend::TimedBackend(BackendPtr inner, const at::Device& device)
    : BackendDecorator(std::move(inner)), device_(device) {}

WorkPtr TimedBackend::run(Operation operation) {
  auto timer = make_device_timer(device_);
  timer->start();
  WorkPtr work = operation.start(inner(), operation);
  return c10::make_intrusive<TimedWork>(std::move(work), std::move(timer), timers_,
                                        device_.is_cpu());
}

double TimedBackend::take_seconds() {
  double seconds = 0;
  for (const auto& timer : std::exchange(*timers_, {})) {
    seconds += timer->seconds();
  }
  return seconds;
}

}  // namespace ddp
