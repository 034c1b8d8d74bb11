#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace ddp {

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
