#include "experiments/bucket_overhead/overhead_simulation.h"

#include <ATen/ATen.h>

#include <cmath>

#include "harness/language_model.h"
#include "harness/trainer.h"

namespace ddp {
namespace {

NetworkModel network_of(const LinkCosts& link, int ranks) {
  const double part = 2.0 * (ranks - 1) / ranks;  // of the bytes, as in cost_ns()
  return {.alpha_ns = 0,
          .beta_ns_per_byte = 1e9 / link.bandwidth / part,
          .launch_overhead_ns = std::llround(1e9 * link.overhead)};
}

}  // namespace

OverheadSimulation::OverheadSimulation(const RankContext& context, const LinkCosts& link,
                                       const SimulatedComputing& computing)
    : computing_(computing),
      network_(c10::make_intrusive<SimulatedNetwork>(
          make_gloo_backend(context, std::chrono::minutes(5)), clock_,
          network_of(link, context.world_size), *context.board)),
      group_(make_process_group(network_, store_for_next_backend(context))) {}

double OverheadSimulation::seconds(std::int64_t cap_bytes) {
  return 1e-9 * static_cast<double>(step_ns("bucketed", cap_bytes) -
                                    step_ns("compute only", /*cap_bytes=*/1));
}

std::int64_t OverheadSimulation::step_ns(const char* variant, std::int64_t cap_bytes) {
  Trainer trainer(variant,
                  make_language_model(
                      make_transformer(computing_.shape, {.clock = clock_,
                                                          .forward_ns = computing_.forward_ns,
                                                          .backward_ns = computing_.backward_ns})),
                  group_, TrainerOptions{{.cap_bytes = cap_bytes}});
  // One token, to keep the real computation short; the virtual clock's time is unaffected.
  const LabelledBatch batch = {.inputs = at::zeros({1, 1}, at::kLong),
                               .labels = at::zeros({1}, at::kLong)};
  const std::int64_t begin = network_->start_step();
  trainer.backward(trainer.forward(batch));
  trainer.finish();
  const at::Tensor took = at::full({1}, network_->step_end() - begin, at::kLong);
  all_reduce(took, group_, ReduceOp::kMax);
  return took.item<std::int64_t>();
}

}  // namespace ddp
