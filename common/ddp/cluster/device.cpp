#include "ddp/cluster/device.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace ddp::cluster {

std::int64_t operator_ns(const Device& device, double flops, double bytes) {
  const double computing = flops / (device.flops_per_second * device.efficiency);
  return std::llround(1e9 * std::max(computing, bytes / device.bytes_per_second));
}

void check(const Device& device) {
  const auto positive = [&](const char* field, double value) {
    TORCH_CHECK_VALUE(value > 0, "the device \"", device.name, "\" has ", field, " = ", value,
                      ", but needs a number above 0");
  };
  positive("flops_per_second", device.flops_per_second);
  positive("bytes_per_second", device.bytes_per_second);
  positive("efficiency", device.efficiency);
  TORCH_CHECK_VALUE(device.efficiency <= 1, "the device \"", device.name,
                    "\" has efficiency = ", device.efficiency, ", but no operator beats the peak");
  TORCH_CHECK_VALUE(device.launch_ns >= 0, "the device \"", device.name,
                    "\" has launch_ns = ", device.launch_ns,
                    ", but a launch takes no negative time");
}

}  // namespace ddp::cluster
