#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "ddp/models/model.h"

namespace ddp {

/// The addresses from a tensor's first element to the end of its last; {0, 0} if it has none.
struct Extent {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
Extent extent_of(const at::Tensor& tensor);

/// Names tensors of a model in messages: "fc1.weight", "the gradient of fc1.weight", "the gradients
/// of fc1.weight and 2 others" for a bucket that gradients are views of, or else the dtype and
/// shape. A tensor is recognized by its memory, so a view of a gradient has the gradient's name.
///
/// Any thread may call all functions. While backward runs, only its thread may look where gradients are:
/// for others they are where they were at the last look.
class TensorNames {
 public:
  void add(const std::vector<NamedTensor>& tensors);
  void look_at_gradients() const;
  /// `look`: at gradients first.
  std::string of(const at::Tensor& tensor, bool look = true) const;

 private:
  std::vector<std::string> gradients_in(const at::Tensor& tensor) const;

  mutable std::mutex mutex_;  // guards all below
  std::vector<NamedTensor> named_;
  mutable std::vector<Extent> gradients_;  // of these, as far as they have been looked at
};

/// "float32 [50, 10]".
std::string describe_tensor(const at::Tensor& tensor);

/// The bytes of all their elements.
std::int64_t total_bytes(const std::vector<at::Tensor>& tensors);

/// True if the extents of the two overlap.
bool overlap(const Extent& a, const Extent& b);
bool overlap(const at::Tensor& a, const at::Tensor& b);

/// Copies the memory of a dense tensor, on whatever device, to `bytes` in host memory, or back. The
/// tensor's version counter stays as with a real backend.
void copy_to_host(const at::Tensor& dense, char* bytes);
void copy_from_host(char* bytes, const at::Tensor& dense);

}  // namespace ddp
