#include "support/oracle.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace ddp::testing {

std::vector<NamedTensor> trainable(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> unique;
  for (const NamedTensor& entry : parameters) {
    const bool seen = std::any_of(unique.begin(), unique.end(), [&](const NamedTensor& other) {
      return other.tensor.is_same(entry.tensor);
    });
    if (entry.tensor.requires_grad() && !seen) {
      unique.push_back(entry);
    }
  }
  return unique;
}

Oracle::Oracle(ToyKind kind, const ToyOptions& options, int world_size) : options_(options) {
  for (int rank = 0; rank < world_size; ++rank) {
    ToyOptions replica = options;
    replica.rank = rank;
    replicas_.push_back(make_toy_model(kind, replica));
  }
}

std::vector<NamedTensor> Oracle::trainable_parameters() const {
  return trainable(replicas_[0]->named_parameters());
}

std::vector<NamedTensor> Oracle::state(int rank) const {
  auto state = trainable(replicas_[rank]->named_parameters());
  const auto buffers = replicas_[rank]->named_buffers();
  state.insert(state.end(), buffers.begin(), buffers.end());
  return state;
}

std::vector<Oracle::Gradient> Oracle::gradients(int step, int rank) {
  const auto world_size = static_cast<double>(replicas_.size());
  std::vector<Gradient> result(trainable_parameters().size());
  for (std::size_t shard = 0; shard < replicas_.size(); ++shard) {
    Model& replica = *replicas_[shard];
    const auto parameters = trainable(replica.named_parameters());
    for (const NamedTensor& parameter : parameters) {
      parameter.tensor.mutable_grad() = at::Tensor();
    }
    toy_loss(replica, make_toy_batch(options_, static_cast<int>(shard), step)).backward();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& gradient = parameters[i].tensor.grad();
      if (!gradient.defined()) {
        continue;
      }
      Gradient& sum = result[i];
      if (static_cast<int>(shard) == rank) {
        sum.local = gradient.clone();
      }
      sum.mean = sum.mean.defined() ? sum.mean + gradient : gradient.clone();
      sum.magnitude = sum.magnitude.defined() ? sum.magnitude + gradient.abs() : gradient.abs();
    }
  }
  last_means_.clear();
  for (Gradient& gradient : result) {
    if (gradient.mean.defined()) {
      gradient.mean /= world_size;
      gradient.magnitude /= world_size;
    }
    last_means_.push_back(gradient.mean);
  }
  return result;
}

void Oracle::sgd_step(double learning_rate) {
  const at::NoGradGuard no_grad;
  for (const auto& replica : replicas_) {
    const auto parameters = trainable(replica->named_parameters());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (last_means_[i].defined()) {
        parameters[i].tensor.variable_data().sub_(last_means_[i], learning_rate);
      }
    }
  }
}

}  // namespace ddp::testing
