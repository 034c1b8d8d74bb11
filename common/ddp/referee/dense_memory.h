#pragma once

#include <ATen/ATen.h>

#include <algorithm>

namespace ddp {

/// Copies the memory of a dense tensor, on whatever device, to `bytes` in host memory, or back. The
/// tensor's version counter stays as with a real backend.
inline void copy_to_host(const at::Tensor& dense, char* bytes) {
  if (dense.is_cpu()) {
    std::copy_n(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes(), bytes);
  } else {
    at::from_blob(bytes, {dense.numel()}, dense.scalar_type())
        .copy_(dense.variable_data().as_strided({dense.numel()}, {1}));
  }
}
inline void copy_from_host(char* bytes, const at::Tensor& dense) {
  if (dense.is_cpu()) {
    std::copy_n(bytes, dense.nbytes(), static_cast<char*>(dense.variable_data().data_ptr()));
  } else {
    dense.variable_data()
        .as_strided({dense.numel()}, {1})
        .copy_(at::from_blob(bytes, {dense.numel()}, dense.scalar_type()));
  }
}

}  // namespace ddp
