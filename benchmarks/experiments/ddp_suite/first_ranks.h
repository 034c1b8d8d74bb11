#pragma once

#include <chrono>
#include <string>

#include "harness/benchmark.h"

namespace ddp {

// For programs with parts that run on some of the ranks only, while the others wait.

/// How long a rank waits for others while they measure without it.
constexpr std::chrono::hours kPatience{6};

/// The transport of gradients: "gloo", "nccl", or empty to choose by device and ranks.
struct Link : LinkLimit {
  std::string backend = {};
};

/// All ranks, on options.device, with kPatience. Throws c10::ValueError if link.backend does not
/// support that device. Collective.
DeviceContext make_patient_device_context(const BenchmarkOptions& options, const Link& link,
                                          const RankContext& context);

/// The first `ranks` of all ranks as a group of their own, with the same backend as `all`. `name`
/// must be unique among the groups of this run. Collective among them; null on the other ranks.
ProcessGroupPtr group_of_first_ranks(int ranks, const std::string& name, const Link& link,
                                     const RankContext& context, const DeviceContext& all);

}  // namespace ddp
