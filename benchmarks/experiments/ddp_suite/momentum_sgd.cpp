#include "experiments/ddp_suite/momentum_sgd.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace ddp {

MomentumSgd::MomentumSgd(const std::vector<NamedTensor>& parameters,
                         const MomentumSgdOptions& options)
    : options_(options), parameters_(tensors_of(parameters)) {}

void MomentumSgd::step() {
  const at::NoGradGuard no_grad;
  const bool is_first = momentum_.empty();
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters_.size());
  momentum_.reserve(parameters_.size());
  for (const at::Tensor& parameter : parameters_) {
    gradients.push_back(parameter.grad());
    if (is_first) {
      momentum_.push_back(at::empty_like(parameter));
    }
  }
  at::_fused_sgd_(parameters_, gradients, momentum_, options_.weight_decay, options_.momentum,
                  options_.learning_rate, /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                  is_first);
  for (const at::Tensor& parameter : parameters_) {
    parameter.mutable_grad().reset();
  }
}

}  // namespace ddp
