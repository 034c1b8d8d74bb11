#pragma once

#include "ddp/call_checks.h"
#include "ddp/collectives.h"

namespace ddp {

/// Checks the arguments of the all-reduces here: a group, and a sum of any dtype or an average of a
/// floating-point dtype.
inline void check_reduction(const char* call, const at::Tensor& tensor,
                            const ProcessGroupPtr& group, ReduceOp op) {
  check_defined(call, tensor);
  TORCH_CHECK(group, call, ": the process group is null");
  TORCH_CHECK(op == ReduceOp::kSum || op == ReduceOp::kAverage, call,
              ": the operation must be a sum or an average");
  TORCH_CHECK(op == ReduceOp::kSum || tensor.is_floating_point(), call, ": an average of ",
              tensor.scalar_type(), " is not defined");
}

}  // namespace ddp
