#pragma once

#include "experiments/ring_all_reduce/rows.h"

namespace ddp {

/// The published procedure: each repeat of each variant forks its ranks anew, on the CPU, connects
/// them, and measures the first call of their lives. Measured are, as published,
///
///     time    seconds from before the rank draws its input until the call returns, so with all
///             that a process does once: no rank waits for the others before; the maximum over ranks
///     maxrss  getrusage()'s ru_maxrss, in KiB, when the call has ended; the maximum over ranks
///     diff    the sum of the squared errors of rank 0's result against the mean in float32, of
///             the same input in every repeat
///
/// Published ranks were spawned, with an interpreter each, which is in their time and memory; ours
/// are forked. Returns the program's exit code.
int measure_first_calls(RingOptions settings);

}  // namespace ddp
