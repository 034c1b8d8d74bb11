#include <ATen/ATen.h>

#include <cmath>
#include <string_view>

#include "experiments/bucket_overhead/bucket_overhead.h"
#include "harness/language_model.h"
#include "harness/trainer.h"
#include "harness/virtual_run.h"

namespace ddp {
namespace {

// What a layer's part of forward and of backward is told in: parts of the whole, in 10^-12.
constexpr double kWhole = 1e12;

NetworkModel network_of(const LinkCosts& link, int ranks) {
  const double part = 2.0 * (ranks - 1) / ranks;  // of the bytes, as in cost_ns()
  return {.alpha_ns = 0,
          .beta_ns_per_byte = 1e9 / link.bandwidth / part,
          .launch_overhead_ns = std::llround(1e9 * link.overhead)};
}

// What happens at construction is a step of its own, before it.
int number_of(int step) { return 2 * step + 1; }

void run_step(Client& client, const DeviceContext& context, const TransformerShape& shape, int step,
              const std::string& variant, std::int64_t cap_bytes) {
  const ComputeListener compute = [&client](std::int64_t parts, const std::string& name) {
    client.compute(parts, name);
  };
  client.go_to({.phase = Phase::kConstruction, .step = 2 * step});
  Trainer trainer(variant,
                  make_transformer(shape, {.compute = compute,
                                           .forward_ns = static_cast<std::int64_t>(kWhole),
                                           .backward_ns = static_cast<std::int64_t>(kWhole)}),
                  context.group, TrainerOptions{{.cap_bytes = cap_bytes}});
  // One token, to keep the real computation short; what is told of it is unaffected.
  const LabelledBatch batch = {.inputs = at::zeros({1, 1}, at::kLong),
                               .labels = at::zeros({1}, at::kLong)};
  client.go_to({.phase = Phase::kForward, .step = number_of(step)});
  trainer.backward(trainer.forward(batch));
  trainer.finish();
  client.go_to({.phase = Phase::kSetup, .step = number_of(step)});
}

}  // namespace

int OverheadSimulation::run(const BenchmarkOptions& options, const TransformerShape& shape,
                            const std::vector<std::int64_t>& cap_bytes) {
  for (const std::int64_t cap : cap_bytes) {
    steps_.emplace(cap, static_cast<int>(steps_.size()) + 1);
  }
  BenchmarkOptions on_cpu = options;
  on_cpu.device = "cpu";
  return run_in_virtual_time(
      on_cpu,
      [&](Client& client) {
        const DeviceContext context = virtual_context(client);
        usable_variants({"bucketed"}, options.implementation, context);
        run_step(client, context, shape, 0, kComputeOnly, 1);
        for (const auto& [cap, step] : steps_) {
          run_step(client, context, shape, step, "bucketed", cap);
        }
      },
      [&](const Evidence& evidence) { evidence_ = evidence; });
}

double OverheadSimulation::seconds(std::int64_t cap_bytes, const LinkCosts& link,
                                   const ComputingTime& computing) const {
  const ComputeCost cost = [&](const Seen& seen, int) -> std::int64_t {
    if (seen.kind != EventKind::kCompute) {
      return 0;
    }
    const bool forward = std::string_view(seen.text).starts_with("forward");
    const auto whole = static_cast<double>(forward ? computing.forward_ns : computing.backward_ns);
    return std::llround(static_cast<double>(seen.number) / kWhole * whole);
  };
  const VirtualTime time(evidence_, network_of(link, evidence_.world.ranks), cost);
  return 1e-9 * static_cast<double>(time.step_ns(number_of(steps_.at(cap_bytes))) -
                                    time.step_ns(number_of(0)));
}

}  // namespace ddp
