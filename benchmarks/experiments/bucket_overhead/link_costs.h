#pragma once

#include <cstdint>
#include <vector>

#include "harness/benchmark.h"

namespace ddp {

/// What an all-reduce of n bytes costs: overhead + n / bandwidth.
struct LinkCosts {
  double overhead = 0;   // o, seconds
  double bandwidth = 0;  // w, bytes a second
};

/// The time of an all-reduce of 64 bytes, 256 and so on, and of `largest`, as bucketed DDP makes
/// them: as many as fit into `largest` bytes, but no more than 64, are launched one after the other
/// and then waited for; the time of each is their share. Of the slowest rank. Collective. Series
/// {"quantity": "message", "bytes": n}.
std::vector<Series> measure_messages(std::int64_t largest, const DeviceContext& device_context);

/// From the medians of measure_messages(): the overhead is the time of the smallest message, and
/// what the largest takes beyond it is its bytes'. Throws c10::Error where that is nothing.
LinkCosts link_costs(const std::vector<Series>& messages);

}  // namespace ddp
