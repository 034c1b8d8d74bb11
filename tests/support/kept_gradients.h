#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "ddp/libtorch_versions.h"

// What a Training knows of its gradients: what autograd adds, and what they should be.

namespace ddp::testing {

/// Copies of parameters' gradients: what they should be as long as they are the caller's.
class KeptGradients {
 public:
  /// Keeps them as they are.
  explicit KeptGradients(const std::vector<at::Tensor>& parameters);
  void keep();
  /// Backward adds `incoming` to the gradient of a parameter.
  void add(std::size_t parameter, const at::Tensor& incoming);

  const at::Tensor& of(std::size_t parameter) const { return copies_[parameter]; }
  /// The parameters whose gradients differ from what was kept, in their bits or by being defined.
  std::vector<std::size_t> changed() const;
  /// Those whose elements are no longer in the same memory.
  std::vector<std::size_t> moved() const;

 private:
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> copies_;
  std::vector<const void*> places_;
};

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
  std::vector<OwnedNode> accumulators_;
};

}  // namespace ddp::testing
