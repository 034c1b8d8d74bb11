#include "experiments/bucketed_ddp/adamw.h"

#include <torch/optim/adamw.h>

namespace ddp {

struct AdamW::Optimizer {
  explicit Optimizer(std::vector<at::Tensor> tensors)
      : parameters(std::move(tensors)), adamw(parameters) {}

  std::vector<at::Tensor> parameters;
  torch::optim::AdamW adamw;
};

AdamW::AdamW(const std::vector<NamedTensor>& parameters)
    : optimizer_(std::make_unique<Optimizer>(tensors_of(parameters))) {}

AdamW::~AdamW() = default;

void AdamW::step() {
  optimizer_->adamw.step();
  // Not by zero_grad(), which first detaches gradients, and so throws if they are views of buckets.
  for (const at::Tensor& parameter : optimizer_->parameters) {
    parameter.mutable_grad().reset();
  }
}

}  // namespace ddp
