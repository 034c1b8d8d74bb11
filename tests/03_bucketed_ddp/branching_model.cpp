#include "branching_model.h"

#include <ATen/ATen.h>

namespace ddp::testing {

BranchingModel::BranchingModel(Rank& rank, const std::vector<std::int64_t>& elements)
    : rank_(rank.rank()) {
  const auto options = at::TensorOptions(at::kDouble).device(settings().device);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    parameters_.push_back(
        {"weight " + std::to_string(i), at::ones({elements[i]}, options).set_requires_grad(true)});
  }
  rank.name(parameters_);
}

at::Tensor BranchingModel::loss(const std::vector<std::size_t>& order, int step) const {
  at::Tensor sum = at::zeros({}, at::TensorOptions(at::kDouble).device(settings().device));
  for (const std::size_t i : order) {
    sum = sum + (parameters_[i].tensor * gradient(i, rank_, step)).sum();
  }
  return sum;
}

// Values that differ between weights, ranks, steps and elements, with exact sums.
at::Tensor BranchingModel::gradient(std::size_t weight, int rank, int step) const {
  const at::Tensor& parameter = parameters_[weight].tensor;
  return at::arange(parameter.numel(), parameter.options().requires_grad(false)) / 16 +
         (1.0 + static_cast<double>(weight) + 32.0 * rank + 256.0 * step);
}

}  // namespace ddp::testing
