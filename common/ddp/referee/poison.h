#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace ddp {

/// Fills a dense tensor with a value that betrays both kinds of access to a buffer in flight. For
/// floating point it is a signalling NaN that carries the operation's number: arithmetic in place
/// makes it quiet, so a write shows as a change of bits; and what was computed from it is a NaN
/// with the same number. Integers get a rare pattern.
void poison(const at::Tensor& tensor, std::int64_t operation);

/// The index (in memory order) of the first element that is not the poison of that operation any
/// more.
std::optional<std::int64_t> first_unpoisoned(const at::Tensor& tensor, std::int64_t operation);

/// The number of the operation whose poison is in the tensor, if any: somebody read a buffer in
/// work, and this came of it. For float32 and float64.
std::optional<std::int64_t> find_poison(const at::Tensor& tensor);

}  // namespace ddp
