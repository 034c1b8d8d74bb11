#include "harness/memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "ddp/meters/memory_meter.h"

namespace ddp {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The number after `key` in /proc/meminfo, in bytes.
std::int64_t of_the_machine(const std::string& key) {
  std::ifstream words("/proc/meminfo");
  for (std::string word; words >> word;) {
    if (std::int64_t kibibytes = 0; word == key + ":" && words >> kibibytes) {
      return kibibytes << 10;
    }
  }
  return kNoLimit;
}

// The memory limit of the control group (version 2) that a container's processes see as their own;
// none if there is no such file, or if it says "max".
std::int64_t limit_of_the_container() {
  std::int64_t bytes = kNoLimit;
  std::ifstream("/sys/fs/cgroup/memory.max") >> bytes;
  return bytes > 0 ? bytes : kNoLimit;
}

}  // namespace

std::int64_t available_memory(const at::Device& device) {
  if (device.is_cpu()) {
    return std::min(of_the_machine("MemAvailable"), limit_of_the_container());
  }
  const auto [free, total] = c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  return static_cast<std::int64_t>(free);
}

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
