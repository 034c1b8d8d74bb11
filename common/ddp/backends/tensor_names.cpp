#include "ddp/backends/tensor_names.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "ddp/libtorch_versions.h"

namespace ddp {

std::int64_t total_bytes(const std::vector<at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
  return bytes;
}

Extent extent_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) {
    return {};
  }
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * tensor.element_size()};
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto [a_begin, a_end] = extent_of(a);
  const auto [b_begin, b_end] = extent_of(b);
  return a_begin < b_end && b_begin < a_end;
}

void copy_to_host(const at::Tensor& dense, char* bytes) {
  if (dense.is_cpu()) {
    std::copy_n(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes(), bytes);
  } else {
    at::from_blob(bytes, {dense.numel()}, dense.scalar_type())
        .copy_(dense.variable_data().as_strided({dense.numel()}, {1}));
  }
}

void copy_from_host(char* bytes, const at::Tensor& dense) {
  if (dense.is_cpu()) {
    std::copy_n(bytes, dense.nbytes(), static_cast<char*>(dense.variable_data().data_ptr()));
  } else {
    dense.variable_data()
        .as_strided({dense.numel()}, {1})
        .copy_(at::from_blob(bytes, {dense.numel()}, dense.scalar_type()));
  }
}

std::string describe_tensor(const at::Tensor& tensor) {
  std::ostringstream out;
  out << dtype_name(tensor.scalar_type()) << " " << tensor.sizes();
  return out.str();
}

void TensorNames::add(const std::vector<NamedTensor>& tensors) {
  named_.insert(named_.end(), tensors.begin(), tensors.end());
}

// The names of the parameters whose gradients share memory with `tensor`; for a tied weight, its
// first name.
std::vector<std::string> TensorNames::gradients_in(const at::Tensor& tensor) const {
  std::vector<std::string> names;
  std::vector<at::Tensor> found;
  for (const NamedTensor& entry : named_) {
    const at::Tensor& gradient = entry.tensor.grad();
    const bool tied = std::ranges::any_of(
        found, [&](const at::Tensor& earlier) { return overlap(earlier, gradient); });
    if (overlap(tensor, gradient) && !tied) {
      names.push_back(entry.name);
      found.push_back(gradient);
    }
  }
  return names;
}

std::string TensorNames::of(const at::Tensor& tensor) const {
  for (const NamedTensor& entry : named_) {
    if (overlap(tensor, entry.tensor)) {
      return entry.name;
    }
  }
  const std::vector<std::string> gradients = gradients_in(tensor);
  if (gradients.size() == 1) {
    return "the gradient of " + gradients[0];
  }
  if (gradients.size() > 1) {  // a bucket
    return "the gradients of " + gradients.front() + " and " +
           std::to_string(gradients.size() - 1) + (gradients.size() == 2 ? " other" : " others");
  }
  return "a tensor " + describe_tensor(tensor);
}

}  // namespace ddp
