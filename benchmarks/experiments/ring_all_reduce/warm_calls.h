#pragma once

#include "experiments/ring_all_reduce/rows.h"

namespace ddp {

/// Calls one after the other in ranks that stay, after some to warm up: what one of many calls of a
/// training costs. The two variants are interleaved, call by call, on equal input. Measured are
///
///     time       seconds of the call alone, which all ranks begin together
///     maxrss     getrusage()'s ru_maxrss, in KiB, when the call has ended: the peak memory of the
///                process, or, where Linux can reset that, the peak since the call began
///     allocated  the peak of the bytes that the call had allocated, beyond the tensor: of tensors
///                only, so not what the backend keeps for itself
///     diff       the sum of the squared errors of the result's elements, against the mean in
///                float64
///
/// each of them the maximum over all ranks. Returns the program's exit code.
int measure_warm_calls(const RingOptions& settings);

}  // namespace ddp
