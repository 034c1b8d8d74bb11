#pragma once

#include <cstdint>
#include <map>

#include "ddp/referee/evidence.h"
#include "experiments/bucket_overhead/link_costs.h"
#include "harness/benchmark.h"
#include "models/transformer.h"

namespace ddp {

/// The measured time of forward and backward, in nanoseconds.
struct ComputingTime {
  std::int64_t forward_ns, backward_ns;
};

/// Bucketed DDP on the simulated network: an all-reduce costs its launch and the time of its bytes,
/// as measured, without latency. Exact, and the same in every run.
class OverheadSimulation {
 public:
  /// Runs one step of each cap, and of computing alone, in ranks of its own; what such a step costs
  /// is asked later. Returns the exit code of run_in_virtual_time().
  int run(const BenchmarkOptions& options, const TransformerShape& shape,
          const std::vector<std::int64_t>& cap_bytes);

  /// The seconds of the step with this cap beyond computing alone, on the slowest rank. Computing is
  /// shared among the weights of the transformer.
  double seconds(std::int64_t cap_bytes, const LinkCosts& link,
                 const ComputingTime& computing) const;

 private:
  std::map<std::int64_t, int> steps_;  // by cap; the first step only computes
  Evidence evidence_;
};

}  // namespace ddp
