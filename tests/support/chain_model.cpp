#include "support/chain_model.h"

#include <ATen/ATen.h>

namespace ddp::testing {

ChainModel::ChainModel(Rank& rank, std::vector<ChainLayer> layers)
    : rank_(rank), layers_(std::move(layers)) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto options = at::TensorOptions(layers_[i].dtype).device(settings().device);
    at::Tensor weight = at::ones({layers_[i].elements}, options);
    weight.set_requires_grad(layers_[i].trainable);
    parameters_.push_back({"layer " + std::to_string(i), weight});
  }
  rank.name(parameters_);
}

at::Tensor ChainModel::loss(int step, double scale) {
  at::Tensor sum = at::zeros({}, at::TensorOptions(at::kDouble).device(settings().device));
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    // Linear in the weight, so its gradient is the factor. Later layers depend on earlier ones only
    // through the running sum: enough to fix the order of backward.
    const at::Tensor term = (parameters_[i].tensor * gradient(i, rank_.rank(), step)).sum();
    sum = simulated_compute(sum + term.to(at::kDouble), rank_.clock(), layers_[i].forward_ns,
                            layers_[i].backward_ns, parameters_[i].name);
  }
  return sum * scale;
}

at::Tensor ChainModel::gradient(std::size_t layer, int rank, int step) const {
  const ChainLayer& spec = layers_[layer];
  const at::Tensor within = at::arange(spec.elements, at::kDouble).remainder(8) / 8;
  const double offset = 1.0 + static_cast<double>(layer) + 16.0 * rank + 64.0 * step;
  return (within + offset).to(settings().device, spec.dtype);
}

at::Tensor ChainModel::mean_gradient(std::size_t layer, int step) const {
  at::Tensor sum = gradient(layer, 0, step).to(at::kDouble);
  for (int rank = 1; rank < rank_.world_size(); ++rank) {
    sum = sum + gradient(layer, rank, step).to(at::kDouble);
  }
  return (sum / rank_.world_size()).to(layers_[layer].dtype);
}

}  // namespace ddp::testing
