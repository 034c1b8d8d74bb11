#pragma once

#include <cstdint>
#include <string>

namespace ddp::cluster {

/// A GPU, by what decides how long its work takes.
struct Device {
  std::string name;
  double flops_per_second = 0;  // at its peak
  double bytes_per_second = 0;  // of its memory
  /// What a launch costs the host, of an operator as of a collective.
  std::int64_t launch_ns = 0;
  /// The part of the peak that operators reach, > 0 and at most 1.
  double efficiency = 1;
  /// Streaming multiprocessors, each of which computes one tile of a matrix product at a time; 0: as
  /// many as there are tiles.
  std::int64_t multiprocessors = 0;
  /// Whether they compute matrix products, so much faster that small tiles wait for their operands.
  bool tensor_cores = false;
  /// Where the numbers come from.
  std::string source = {};
};

/// How long an operator keeps the device busy, in nanoseconds: its arithmetic or its bytes, read and
/// written, whichever takes longer. Source: Williams, Waterman, Patterson, "Roofline: An Insightful
/// Visual Performance Model for Multicore Architectures", 2009.
std::int64_t operator_ns(const Device& device, double flops, double bytes);

/// Throws c10::ValueError, which names the device and the field, for rates that are not positive, an
/// efficiency outside (0, 1], or a negative launch.
void check(const Device& device);

}  // namespace ddp::cluster
