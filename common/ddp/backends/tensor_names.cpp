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

bool overlap(const Extent& a, const Extent& b) { return a.begin < b.end && b.begin < a.end; }

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  return overlap(extent_of(a), extent_of(b));
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
  const std::lock_guard lock(mutex_);
  named_.insert(named_.end(), tensors.begin(), tensors.end());
}

void TensorNames::look_at_gradients() const {
  const std::lock_guard lock(mutex_);
  gradients_.clear();
  for (const NamedTensor& entry : named_) {
    gradients_.push_back(extent_of(entry.tensor.grad()));
  }
}

// The names of the parameters whose gradients share memory with `tensor`; for a tied weight, its
// first name.
std::vector<std::string> TensorNames::gradients_in(const at::Tensor& tensor) const {
  std::vector<std::string> names;
  std::vector<Extent> found;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const bool tied = std::ranges::any_of(
        found, [&](const Extent& earlier) { return overlap(earlier, gradients_[i]); });
    if (overlap(extent_of(tensor), gradients_[i]) && !tied) {
      names.push_back(named_[i].name);
      found.push_back(gradients_[i]);
    }
  }
  return names;
}

std::string TensorNames::of(const at::Tensor& tensor, bool look) const {
  if (look) {
    look_at_gradients();
  }
  const std::lock_guard lock(mutex_);
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
