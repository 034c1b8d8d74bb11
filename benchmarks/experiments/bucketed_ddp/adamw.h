#pragma once

#include <memory>
#include <vector>

#include "ddp/model.h"

namespace ddp {

/// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019): libtorch's
/// torch::optim::AdamW with its defaults, behind a header that is cheap to compile. Its state is
/// two tensors per parameter, each of the parameter's size, made at the first step.
class AdamW {
 public:
  /// Updates the tensors of `parameters`, which it shares.
  explicit AdamW(const std::vector<NamedTensor>& parameters);
  AdamW(const AdamW&) = delete;
  AdamW& operator=(const AdamW&) = delete;
  ~AdamW();

  /// One update with the gradients, which are then set to none.
  void step();

 private:
  struct Optimizer;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace ddp
