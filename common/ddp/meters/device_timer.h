#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace ddp {

/// Measures how long a device works on the work queued between start() and stop().
class DeviceTimer {
 public:
  DeviceTimer() = default;
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;
  virtual ~DeviceTimer() = default;

  virtual void start() = 0;
  virtual void stop() = 0;

  /// Seconds from the last start() to the last stop(); waits until the device has reached it.
  virtual double seconds() = 0;
};

/// On a GPU: a pair of events in the current stream, which do not pause the stream and do not count
/// the host's launch delays. On the CPU: a steady clock.
std::unique_ptr<DeviceTimer> make_device_timer(const at::Device& device);

}  // namespace ddp
