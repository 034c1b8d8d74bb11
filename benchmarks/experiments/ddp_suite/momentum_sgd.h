#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ddp/model.h"

namespace ddp {

struct MomentumSgdOptions {
  double learning_rate, momentum, weight_decay;
};

/// Stochastic gradient descent with momentum as in PyTorch's torch.optim.SGD(fused=True), by the
/// same function of libtorch: one pass over parameters, gradients and momentum.
class MomentumSgd {
 public:
  MomentumSgd(const std::vector<NamedTensor>& parameters, const MomentumSgdOptions& options);

  /// Updates the parameters with their gradients, which must all exist, and sets those to none.
  void step();

 private:
  MomentumSgdOptions options_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> momentum_;  // empty before the first step
};

}  // namespace ddp
