#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ddp/referee/evidence.h"
#include "harness/benchmark.h"
#include "harness/interleaved.h"
#include "models/transformer.h"

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
