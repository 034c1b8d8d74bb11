#include "ddp/shm/reduction.h"

#include <ATen/Dispatch.h>
#include <ATen/NumericUtils.h>

#include <algorithm>
#include <functional>

namespace ddp {
namespace {

struct Least {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a || at::_isnan(b) ? b : a;  // a NaN wins
  }
};

struct Greatest {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b || at::_isnan(b) ? b : a;
  }
};

template <typename T, typename Operator>
void combine(char* out, const char* a, const char* b, std::int64_t bytes) {
  const auto count = bytes / static_cast<std::int64_t>(sizeof(T));
  std::transform(reinterpret_cast<const T*>(a), reinterpret_cast<const T*>(a) + count,
                 reinterpret_cast<const T*>(b), reinterpret_cast<T*>(out),
                 [](T x, T y) { return static_cast<T>(Operator()(x, y)); });
}

void leave(char*, std::int64_t, int) {}

template <typename T>
void divide(char* result, std::int64_t bytes, int ranks) {
  auto* elements = reinterpret_cast<T*>(result);
  const auto count = bytes / static_cast<std::int64_t>(sizeof(T));
  std::transform(elements, elements + count, elements,
                 [ranks](T sum) { return static_cast<T>(sum / static_cast<T>(ranks)); });
}

template <typename T>
Reduction of_type(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return {combine<T, std::plus<>>, leave};
    case c10d::ReduceOp::AVG:
      return {combine<T, std::plus<>>, divide<T>};
    case c10d::ReduceOp::PRODUCT:
      return {combine<T, std::multiplies<>>, leave};
    case c10d::ReduceOp::MIN:
      return {combine<T, Least>, leave};
    case c10d::ReduceOp::MAX:
      return {combine<T, Greatest>, leave};
    default:
      TORCH_CHECK(false,
                  "shared memory sums, averages, multiplies, and finds minima and maxima; "
                  "take --backend gloo for more");
  }
}

}  // namespace

Reduction reduction_of(at::ScalarType type, c10d::ReduceOp::RedOpType op) {
  return AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "shared memory",
                                    [&] { return of_type<scalar_t>(op); });
}

}  // namespace ddp
