#pragma once

#include <memory>
#include <vector>

#include "ddp/backends/backend_decorator.h"
#include "ddp/meters/device_timer.h"

namespace ddp {

/// Adds up how long operations take on this rank, each from its launch until wait() on it returns
/// (on a GPU: in the current stream), including the wait for slower ranks. Waits of other kinds,
/// such as by a future, are not seen.
class TimedBackend : public BackendDecorator {
 public:
  TimedBackend(BackendPtr inner, const at::Device& device);

  WorkPtr run(Operation operation) override;

  /// Seconds of the operations that completed since the last call; waits until the device has
  /// finished them.
  double take_seconds();

 private:
  const at::Device device_;
  /// Of completed operations.
  std::shared_ptr<std::vector<std::unique_ptr<DeviceTimer>>> timers_ =
      std::make_shared<std::vector<std::unique_ptr<DeviceTimer>>>();
};

}  // namespace ddp
