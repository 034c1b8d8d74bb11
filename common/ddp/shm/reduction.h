#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace ddp {

/// How the elements of a type are combined.
struct Reduction {
  /// Writes a op b; `out` may be a or b. `bytes` is a multiple of an element's size.
  void (*combine)(char* out, const char* a, const char* b, std::int64_t bytes);
  /// Makes the result of that of all ranks: divides it for an average.
  void (*finish)(char* result, std::int64_t bytes, int ranks);
};

/// Sums, averages of floating point, products, minima and maxima. Throws c10::Error for another
/// operation or type.
Reduction reduction_of(at::ScalarType type, c10d::ReduceOp::RedOpType op);

}  // namespace ddp
