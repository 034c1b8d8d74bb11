#pragma once

#include <chrono>
#include <string>

#include "harness/benchmark.h"

namespace ddp {

// For programs whose parts run on some of the ranks only, while the others wait.

/// How long a rank waits for others that measure something without it.
constexpr std::chrono::hours kPatience{6};

/// What moves gradients: "gloo", "nccl", or empty for what fits the device and the ranks.
struct Link {
  std::string backend = {};
  double rate_gbit = 0;  // 0: as fast as it is; see BenchmarkOptions
};

/// All ranks, on options.device, with kPatience. Throws c10::ValueError where link.backend cannot
/// serve that device. Collective.
DeviceContext make_patient_device_context(const BenchmarkOptions& options, const Link& link,
                                          const RankContext& context);

/// The first `ranks` of all ranks as a group of their own, with the backend that `all` has. `name`
/// is one that no other group of this run has. Collective among them; null on the other ranks.
ProcessGroupPtr group_of_first_ranks(int ranks, const std::string& name, const Link& link,
                                     const RankContext& context, const DeviceContext& all);

}  // namespace ddp
