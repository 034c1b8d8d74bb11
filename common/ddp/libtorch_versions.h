#pragma once

// What differs among the releases of libtorch that the lab is built on: CMakeLists.txt names the oldest, requirements.txt
// the newest.

#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

namespace ddp {

/// "float32". Strings until 2.11, views of them since: with 2.12 as the oldest callers can use c10's.
inline std::string dtype_name(at::ScalarType dtype) {
  return std::string(c10::getDtypeNames(dtype).first);
}

/// Owns a node of autograd's graph. A std::shared_ptr until 2.14, a c10::intrusive_ptr since.
using OwnedNode =
    decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::autograd::Variable&>()));

}  // namespace ddp
