#include "experiments/memory_per_gpu/master_adamw.h"

#include <ATen/ATen.h>

#include <cmath>
#include <memory>

#include "ddp/cluster/meta_memory.h"

namespace ddp {

namespace {

constexpr double kRate = 1e-3, kDecay = 0.01, kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;

struct NoOptions : torch::optim::OptimizerCloneableOptions<NoOptions> {};

}  // namespace

MasterAdamW::MasterAdamW(std::vector<at::Tensor> parameters)
    : Optimizer({torch::optim::OptimizerParamGroup(parameters)}, std::make_unique<NoOptions>()) {
  const at::NoGradGuard no_grad;
  const cluster::MemoryScope scope(cluster::MemoryKind::kOptimizer, "construction");
  for (const at::Tensor& parameter : parameters) {
    at::Tensor master = parameter.detach().to(at::kFloat);
    states_.push_back({parameter, master, at::zeros_like(master), at::zeros_like(master)});
  }
}

at::Tensor MasterAdamW::step(LossClosure closure) {
  TORCH_CHECK(!closure, "MasterAdamW takes no closure");
  const at::NoGradGuard no_grad;
  const cluster::MemoryScope scope(cluster::MemoryKind::kOptimizer, "update");
  ++steps_;
  for (State& state : states_) {
    const at::Tensor gradient = state.parameter.grad().to(at::kFloat);
    state.mean.lerp_(gradient, 1 - kBeta1);
    state.square.mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
    const double rate = kRate / (1 - std::pow(kBeta1, steps_));
    const at::Tensor root =
        state.square.sqrt().div_(std::sqrt(1 - std::pow(kBeta2, steps_))).add_(kEpsilon);
    state.master.mul_(1 - kRate * kDecay).addcdiv_(state.mean, root, -rate);
    state.parameter.copy_(state.master);
  }
  return {};
}

void MasterAdamW::save(torch::serialize::OutputArchive& /*archive*/) const {
  TORCH_CHECK(false, "MasterAdamW cannot be saved");
}

void MasterAdamW::load(torch::serialize::InputArchive& /*archive*/) {
  TORCH_CHECK(false, "MasterAdamW cannot be loaded");
}

}  // namespace ddp
