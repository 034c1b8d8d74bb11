#pragma once

#include "ddp/call_checks.h"
#include "ddp/collectives.h"

namespace ddp {

/// What the all-reduces of this room take: a group, and a sum of anything or an average of floating point.
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
