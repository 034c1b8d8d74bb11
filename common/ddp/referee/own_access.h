#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

namespace ddp {

/// While it lives, this thread's accesses to tensors are the harness's own: without autograd, and
/// hidden from AccessWatch.
struct OwnAccess {
  at::NoGradGuard no_grad;
  at::RecordFunctionGuard unobserved{false};
};

}  // namespace ddp
