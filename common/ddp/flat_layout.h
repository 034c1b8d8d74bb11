#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp {

/// Where the tensors of a list lie in one flat tensor: one after the other, each in row-major order, one
/// that is listed twice (tied weights) only at its first place; then padding, up to a multiple of
/// `chunks`.
class FlatLayout {
 public:
  FlatLayout(const std::vector<at::Tensor>& tensors, std::int64_t chunks);

  std::size_t tensors() const { return shapes_.size(); }
  const std::vector<std::int64_t>& shape(std::size_t tensor) const { return shapes_[tensor]; }
  /// Without padding.
  std::int64_t elements() const { return elements_; }
  std::int64_t padded_elements() const { return elements_ + pieces_.back(); }

  /// The tensors as views of `flat`, made by two operators, so that autograd makes the flat gradient in
  /// one piece.
  std::vector<at::Tensor> views_of(const at::Tensor& flat) const;

  /// A new flat tensor with the values of tensors() tensors, the first one of which is at `first`; of
  /// tied ones the first counts. The padding is zeros, and autograd records nothing.
  at::Tensor flatten(const at::Tensor* first) const;

 private:
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<std::size_t> piece_;    // of each tensor
  std::vector<std::int64_t> pieces_;  // their elements; the last one is padding
  std::int64_t elements_ = 0;
};

}  // namespace ddp
