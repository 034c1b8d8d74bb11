#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace ddp::testing {

/// While it lives, it sees each gradient just before autograd accumulates it, so before any hook of
/// the parameter.
class GradientTap {
 public:
  /// Of a parameter, by its place in the list, and what will be added to its gradient.
  using Function = std::function<void(std::size_t parameter, const at::Tensor& incoming)>;

  /// Parameters that require no gradient are passed over.
  GradientTap(const std::vector<at::Tensor>& parameters, Function function);

 private:
  std::shared_ptr<const Function> function_;
  // A parameter owns its accumulator only as long as a graph does.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
};

}  // namespace ddp::testing
