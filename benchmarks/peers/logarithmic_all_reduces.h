#pragma once

#include <ATen/core/Tensor.h>

#include "ddp/collectives.h"

namespace ddp {

// Two all-reduces in about log2 N steps of point-to-point messages, each of the whole tensor: peers
// of stage 05's ring, which needs 2(N-1) steps with an N-th of it. N is the world size, which may
// be any; a message of all S bytes takes alpha + S beta. Source: Thakur, Rabenseifner, Gropp,
// "Optimization of Collective Communication Operations in MPICH", 2005.
//
// Both replace `tensor` in place, in its own storage; any shape, contiguous or not. Collective.
// Sums are formed in the tensor's dtype, pairwise; the result is bitwise equal on all ranks. A rank
// needs additional memory of the tensor's size. They throw c10::Error before any message: an
// undefined tensor, a null group, an op that is neither sum nor average, an average of integers.

/// In step k rank r exchanges its sum so far with rank r XOR 2^k, and both add: after log2 N steps
/// every rank has the whole sum.
///
///     time = (log2 N)             (alpha + S beta)    where N is a power of two
///            (floor(log2 N) + 2)  (alpha + S beta)    otherwise
///
/// Otherwise the first 2(N-P) ranks, where P is the largest power of two below N, form pairs: the
/// even rank hands its tensor to the odd one first, and receives the result at the end.
void recursive_doubling_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group,
                                   ReduceOp op = ReduceOp::kSum);

/// A binomial tree with rank 0 as its root: sums go up (reduce), the result comes down (broadcast).
///
///     time = 2 ceil(log2 N) (alpha + S beta)
///
/// The fewest messages of all, 2(N-1) in the whole network; but most ranks wait most of the time.
void tree_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op = ReduceOp::kSum);

}  // namespace ddp
