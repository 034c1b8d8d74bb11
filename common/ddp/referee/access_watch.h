#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <cstdint>

namespace ddp {

/// Told of every access to a tensor's memory by an ATen operator.
class AccessListener {
 public:
  AccessListener() = default;
  AccessListener(const AccessListener&) = delete;
  AccessListener& operator=(const AccessListener&) = delete;
  virtual ~AccessListener() = default;

  virtual void note_access(const at::Tensor& tensor, bool writes, const char* operator_name) = 0;
};

/// While it lives, every ATen operator of this process reports its accesses to `listener`, so that a
/// read of a buffer in flight is found even if its result is not used. Costs a microsecond for each
/// operator. One at a time in a process.
class AccessWatch {
 public:
  explicit AccessWatch(AccessListener& listener);
  AccessWatch(const AccessWatch&) = delete;
  AccessWatch& operator=(const AccessWatch&) = delete;
  ~AccessWatch();

 private:
  std::uint64_t handle_;
};

/// While it lives, this thread's accesses to tensors are the harness's own: without autograd, and
/// hidden from AccessWatch.
struct OwnAccess {
  at::NoGradGuard no_grad;
  at::RecordFunctionGuard unobserved{false};
};

}  // namespace ddp
