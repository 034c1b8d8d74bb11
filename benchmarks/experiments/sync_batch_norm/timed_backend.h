#pragma once

#include <memory>
#include <vector>

#include "ddp/backends/backend_decorator.h"
#include "ddp/meters/device_timer.h"

namespace ddp {

/// Adds up how long operations take on this rank, each from its launch until wait() on it returns
/// (on a GPU: in the current stream), the waiting for slower ranks included. What a rank waits for
/// in other ways, such as by a future, is not seen.
class TimedBackend : public BackendDecorator {
 public:
  TimedBackend(BackendPtr inner, const at::Device& device);

  WorkPtr run(Operation operation) override;

  /// Seconds of the operations that ended since the last call; waits until the device has come
  /// that far.
  double take_seconds();

 private:
  const at::Device device_;
  /// Of operations that have ended.
  std::shared_ptr<std::vector<std::unique_ptr<DeviceTimer>>> timers_ =
      std::make_shared<std::vector<std::unique_ptr<DeviceTimer>>>();
};

}  // namespace ddp
