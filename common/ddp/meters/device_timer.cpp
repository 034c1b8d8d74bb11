#include "ddp/meters/device_timer.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>

namespace ddp {

namespace {

class ClockTimer : public DeviceTimer {
 public:
  void start() override { start_ = Clock::now(); }
  void stop() override { stop_ = Clock::now(); }
  double seconds() override { return std::chrono::duration<double>(stop_ - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  Clock::time_point stop_;
};

class EventTimer : public DeviceTimer {
 public:
  explicit EventTimer(const at::Device& device)
      : device_(device),
        // The other flag switches timing off.
        start_(device.type(), c10::EventFlag::BACKEND_DEFAULT),
        stop_(device.type(), c10::EventFlag::BACKEND_DEFAULT) {}

  void start() override { record(start_); }
  void stop() override { record(stop_); }

  double seconds() override {
    stop_.synchronize();
    return start_.elapsedTime(stop_) * 1e-3;  // given in milliseconds
  }

 private:
  void record(c10::Event& event) {
    event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }

  const at::Device device_;
  c10::Event start_;
  c10::Event stop_;
};

}  // namespace

std::unique_ptr<DeviceTimer> make_device_timer(const at::Device& device) {
  if (device.is_cpu()) {
    return std::make_unique<ClockTimer>();
  }
  return std::make_unique<EventTimer>(device);
}

}  // namespace ddp
