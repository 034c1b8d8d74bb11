#include "harness/peak_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "ddp/meters/memory_meter.h"

namespace ddp {

std::int64_t peak_bytes(const at::Device& device, const std::function<void()>& body) {
  if (device.is_cpu()) {
    const MemoryMeter meter;
    body();
    return meter.peak_bytes();
  }
  c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(device.type());
  const auto bytes = [&] {
    using c10::CachingAllocator::StatType;
    const auto all = static_cast<std::size_t>(StatType::AGGREGATE);
    return allocator.getDeviceStats(device.index()).allocated_bytes[all];
  };
  allocator.resetPeakStats(device.index());
  const std::int64_t before = bytes().current;
  body();
  return bytes().peak - before;
}

}  // namespace ddp
