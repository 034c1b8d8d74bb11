#pragma once

#include <cstdint>
#include <memory>

#include "ddp/ranks/launch.h"
#include "ddp/simulation/simulated_network.h"
#include "experiments/bucket_overhead/link_costs.h"
#include "models/transformer.h"

namespace ddp {

/// A transformer whose forward and backward take so long in all, each weight its share.
struct SimulatedComputing {
  TransformerShape shape;
  std::int64_t forward_ns, backward_ns;
};

/// Bucketed DDP on the simulated network: all-reduces cost their launch and their bytes' time, as
/// measured, and have no latency besides. Exact, and the same in every run.
class OverheadSimulation {
 public:
  /// Collective. The ranks share memory: context.board is not null. The stage's library is loaded.
  OverheadSimulation(const RankContext& context, const LinkCosts& link,
                     const SimulatedComputing& computing);

  /// What a step with this cap takes beyond computing alone, on the slowest rank. Collective.
  double seconds(std::int64_t cap_bytes);

 private:
  std::int64_t step_ns(const char* variant, std::int64_t cap_bytes);

  const SimulatedComputing computing_;
  const std::shared_ptr<VirtualClock> clock_ = std::make_shared<VirtualClock>();
  const c10::intrusive_ptr<SimulatedNetwork> network_;
  const ProcessGroupPtr group_;
};

}  // namespace ddp
