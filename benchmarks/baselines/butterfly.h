#pragma once

#include <ATen/core/Tensor.h>

#include "ddp/collectives.h"

namespace ddp {

/// All-reduce in two steps in which every rank talks to every other one, the baseline of stage 05's
/// ring: each rank gathers its own chunk of the balanced split from all others, adds
/// (reduce-scatter), and sends the result to all others (all-gather). Fewer steps than the ring (2
/// instead of 2(N-1)), the same bytes per rank, but N-1 messages per rank at a time, through every
/// link of the network.
///
/// `tensor` is replaced in place, in its own storage; any shape, contiguous or not. Collective.
/// Chunks are added in the order of ranks, in the tensor's dtype; the result is bitwise equal on
/// all ranks. A rank needs additional memory for world size * one chunk. Point-to-point messages
/// only. Throws c10::Error before any message: an undefined tensor, a null group, an op that is
/// neither sum nor average, an average of integers.
void butterfly_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group,
                          ReduceOp op = ReduceOp::kSum);

/// Checks the arguments of the given all-reduces: a group, and a sum of any dtype or an average of a
/// floating-point dtype.
void check_reduction(const char* call, const at::Tensor& tensor, const ProcessGroupPtr& group,
                     ReduceOp op);

}  // namespace ddp
