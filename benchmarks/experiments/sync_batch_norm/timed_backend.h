#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "ddp/backends/operation_backend.h"
#include "ddp/meters/device_timer.h"

namespace ddp {

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

/// Adds up how long operations take on this rank, each from its launch until wait() on it returns
/// (on a GPU: in the current stream), including the wait for slower ranks. Waits of other kinds,
/// such as by a future, are not seen.
class TimedBackend : public BackendDecorator {
 public:
  TimedBackend(BackendPtr inner, const at::Device& device)
      : BackendDecorator(std::move(inner)), device_(device) {}

  WorkPtr run(Operation operation) override {
    auto timer = make_device_timer(device_);
    timer->start();
    WorkPtr work = operation.start(inner(), operation);
    return c10::make_intrusive<TimedWork>(std::move(work), std::move(timer), timers_,
                                          device_.is_cpu());
  }

  /// Seconds of the operations that completed since the last call; waits until the device has
  /// finished them.
  double take_seconds() {
    double seconds = 0;
    for (const auto& timer : std::exchange(*timers_, {})) {
      seconds += timer->seconds();
    }
    return seconds;
  }

 private:
  const at::Device device_;
  const std::shared_ptr<Timers> timers_ = std::make_shared<Timers>();  // of completed operations
};

}  // namespace ddp
