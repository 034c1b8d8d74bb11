#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

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

}  // namespace ddp::testing
