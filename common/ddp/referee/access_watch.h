#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <optional>

// How accesses to a buffer in flight are found: operators are watched, and its memory is poisoned.

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

/// Fills a dense tensor with a value that reveals reads and writes of a buffer in flight. For
/// floating point it is a signalling NaN that carries the operation's number: in-place arithmetic
/// makes it quiet, so a write shows as a change of bits; and results computed from it are NaNs with
/// the same number. Integers get a rare pattern.
void poison(const at::Tensor& tensor, std::int64_t operation);

/// The index (in memory order) of the first element that is no longer the poison of that operation,
/// among those in the tensor's first `bytes` bytes.
std::optional<std::int64_t> first_unpoisoned(const at::Tensor& tensor, std::int64_t operation,
                                             std::size_t bytes = SIZE_MAX);

/// The number of the operation whose poison is in the tensor, if any: it was computed from a buffer
/// in flight. For float32 and float64.
std::optional<std::int64_t> find_poison(const at::Tensor& tensor);

}  // namespace ddp
