#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>

namespace ddp::testing {

/// A contiguous tensor on the tests' device whose element i, in row-major order, is value(i), called
/// once each in that order. A loop writes it: an operator computes what a stage may have registered
/// for it, such as the same numbers on each rank, of which the mean needs no communication.
at::Tensor filled(at::IntArrayRef shape, at::ScalarType dtype,
                  const std::function<double(std::int64_t)>& value);

}  // namespace ddp::testing
