#pragma once

#include <vector>

#include "ddp/balanced_split.h"
#include "ring_evidence.h"

// How exact a sum is.

namespace ddp::testing {

using TensorList = std::vector<at::Tensor>;

/// The largest relative error of one operation.
double unit_of(at::ScalarType dtype);

/// The spacing of the smallest numbers: quotients there are off by more than a relative error.
double smallest_number(at::ScalarType dtype);

/// The ranks' parts of a chunk, in a type that rounds less: float64 or int64.
TensorList inputs_of(const CallOfGroup& call, const Chunk& chunk);

/// The sum in float64, as if it were rounded only once.
at::Tensor accurate_sum(const TensorList& values);

/// Whether a call adds anything up.
inline bool is_sum(const CallOfGroup& call) { return call.function() != Function::kAllGather; }

}  // namespace ddp::testing
