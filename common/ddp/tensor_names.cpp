#include "ddp/tensor_names.h"

#include <cstdint>
#include <sstream>
#include <utility>

namespace ddp {

namespace {

std::pair<std::uintptr_t, std::uintptr_t> extent(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) {
    return {0, 0};
  }
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * tensor.element_size()};
}

}  // namespace

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto [a_begin, a_end] = extent(a);
  const auto [b_begin, b_end] = extent(b);
  return a_begin < b_end && b_begin < a_end;
}

std::string describe_tensor(const at::Tensor& tensor) {
  std::ostringstream out;
  out << c10::getDtypeNames(tensor.scalar_type()).first << " " << tensor.sizes();
  return out.str();
}

void TensorNames::add(const std::vector<NamedTensor>& tensors) {
  named_.insert(named_.end(), tensors.begin(), tensors.end());
}

std::string TensorNames::of(const at::Tensor& tensor) const {
  for (const NamedTensor& entry : named_) {
    if (overlap(tensor, entry.tensor)) {
      return entry.name;
    }
  }
  for (const NamedTensor& entry : named_) {
    if (overlap(tensor, entry.tensor.grad())) {
      return "the gradient of " + entry.name;
    }
  }
  return "a tensor " + describe_tensor(tensor);
}

}  // namespace ddp
