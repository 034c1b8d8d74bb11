#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

namespace ddp {

/// AdamW as large models are trained in half precision: beside each parameter a float32 copy of it, and
/// float32 means of its gradients and of their squares: 12 bytes a parameter.
class MasterAdamW : public torch::optim::Optimizer {
 public:
  explicit MasterAdamW(std::vector<at::Tensor> parameters);

  at::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State {
    at::Tensor parameter;  // the caller's
    at::Tensor master, mean, square;
  };
  std::vector<State> states_;
  int steps_ = 0;
};

}  // namespace ddp
