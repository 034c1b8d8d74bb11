#pragma once

#include <ATen/ATen.h>

#include <cstring>

namespace ddp {

/// Copies the memory of a dense tensor, on whatever device, to `bytes` in host memory, or back. The
/// tensor's version counter stays as with a real backend.
inline void copy_to_host(const at::Tensor& dense, char* bytes) {
  if (dense.is_cpu()) {
    std::memcpy(bytes, dense.const_data_ptr(), dense.nbytes());
  } else {
    at::from_blob(bytes, {dense.numel()}, dense.scalar_type())
        .copy_(dense.variable_data().as_strided({dense.numel()}, {1}));
  }
}
inline void copy_from_host(char* bytes, const at::Tensor& dense) {
  if (dense.is_cpu()) {
    std::memcpy(dense.variable_data().data_ptr(), bytes, dense.nbytes());
  } else {
    dense.variable_data()
        .as_strided({dense.numel()}, {1})
        .copy_(at::from_blob(bytes, {dense.numel()}, dense.scalar_type()));
  }
}

}  // namespace ddp
