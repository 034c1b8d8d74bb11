#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

/// Where the tensors of a list lie in one flat tensor: one after the other, each in row-major order, one
/// that is listed twice (tied weights) only at its first place; then padding, up to a multiple of
/// `chunks`.
class FlatLayout {
 public:
  /// Throws c10::Error if there are no tensors, or none with elements, or one is undefined or has
  /// another dtype or device than the first; the message names `list` and the tensor's index.
  FlatLayout(const std::vector<at::Tensor>& tensors, std::int64_t chunks, const std::string& list);

  std::size_t tensors() const { return shapes_.size(); }
  /// Without padding.
  std::int64_t elements() const { return elements_; }
  std::int64_t padded_elements() const { return elements_ + pieces_.back(); }

  /// The tensors as views of `flat`, made by two operators, so that autograd makes the flat gradient in
  /// one piece.
  std::vector<at::Tensor> views_of(const at::Tensor& flat) const;

  /// A new flat tensor with the values of tensors() tensors in `list`, from index `first` on; of tied ones
  /// the first counts. The padding is zeros, and autograd records nothing. Throws c10::Error, with the
  /// index, if there are fewer tensors, or one is undefined or has another shape or dtype.
  at::Tensor flatten(const std::vector<at::Tensor>& list, std::size_t first = 0) const;

 private:
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<std::size_t> piece_;    // of each tensor
  std::vector<std::int64_t> pieces_;  // their elements; the last one is padding
  std::int64_t elements_ = 0;
  at::TensorOptions options_;
};

}  // namespace ddp
