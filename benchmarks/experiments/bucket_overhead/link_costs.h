#pragma once

#include <cstdint>
#include <vector>

#include "harness/benchmark.h"
#include "harness/interleaved.h"

namespace ddp {

/// The cost of an all-reduce of n bytes: overhead + n / bandwidth.
struct LinkCosts {
  double overhead = 0;   // o, seconds
  double bandwidth = 0;  // w, bytes per second
};

/// The time of an all-reduce of 64 bytes, 256 and so on, and of `largest`, launched as in bucketed
/// DDP: as many as fit into `largest` bytes, but at most 64, are launched one after another and
/// then waited for, and the time is divided by their number. Of the slowest rank, four times as
/// often as `repetitions`. Collective. Series {"quantity": "message", "bytes": n}.
std::vector<Series> measure_messages(std::int64_t largest, const Repetitions& repetitions,
                                     const DeviceContext& device_context);

/// From the medians of measure_messages(): the overhead is the time of the smallest message, and
/// the additional time of the largest is that of its bytes. Throws c10::Error if there is none.
LinkCosts link_costs(const std::vector<Series>& messages);

}  // namespace ddp
