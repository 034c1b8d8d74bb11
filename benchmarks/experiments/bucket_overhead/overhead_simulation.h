#pragma once

#include <cstdint>
#include <memory>

#include "ddp/ranks/launch.h"
#include "ddp/simulation/simulated_network.h"
#include "experiments/bucket_overhead/link_costs.h"
#include "models/transformer.h"

namespace ddp {

/// The total computing time of a transformer's forward and backward, shared among its weights.
struct SimulatedComputing {
  TransformerShape shape;
  std::int64_t forward_ns, backward_ns;
};

/// Bucketed DDP on the simulated network: an all-reduce costs its launch and the time of its bytes,
/// as measured, without latency. Exact, and the same in every run.
class OverheadSimulation {
 public:
  /// Collective. The ranks must share memory: context.board is not null. The stage's library must
  /// be loaded.
  OverheadSimulation(const RankContext& context, const LinkCosts& link,
                     const SimulatedComputing& computing);

  /// The time of a step with this cap beyond computing alone, on the slowest rank. Collective.
  double seconds(std::int64_t cap_bytes);

 private:
  std::int64_t step_ns(const char* variant, std::int64_t cap_bytes);

  const SimulatedComputing computing_;
  const std::shared_ptr<VirtualClock> clock_ = std::make_shared<VirtualClock>();
  const c10::intrusive_ptr<SimulatedNetwork> network_;
  const ProcessGroupPtr group_;
};

}  // namespace ddp
