#include "harness/memory_check.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>

#include "ddp/ranks/environment.h"

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

int ranks_of_this_machine(const BenchmarkOptions& options) {
  try {
    if (const auto environment = read_launch_environment()) {
      return environment->local_rank + 1;
    }
  } catch (const c10::Error&) {
    return 1;  // launch() reports the error
  }
  return options.world_size;
}

std::string in_gigabytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GB", 1e-9 * static_cast<double>(bytes));
  return text;
}

}  // namespace ddp
