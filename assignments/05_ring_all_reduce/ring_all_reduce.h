#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "ddp/collectives.h"

namespace ddp {

// Stage 05: ring all-reduce. Handout: assignments/05_ring_all_reduce/README.md.
//
// N is the group's size, and ranks are the group's: a process may be in several groups, and have
// another rank in each. The right neighbour of rank r is (r + 1) mod N, the left one (r - 1) mod N.
// In the functions of the ring a rank sends only to its right neighbour, receives only from its left
// one, and never calls a collective of the group. Do not rely on a send to complete before its recv
// is posted. A tensor that is being sent may be read, but not written; one
// that is being received, neither. Every handle is waited for exactly once, and nothing is in flight
// when a function returns.
//
// Tensors: any shape, also without elements, contiguous or not; float32, float64, half, bfloat16,
// int8 to int64 or uint8; on any device that the group sends from. The result is written into the
// tensor's own storage, and nothing else of the tensor changes, nor per-thread or global state
// such as autograd's mode. The tensor's elements, flattened in row-major order, are split
// into the chunks 0 ... N-1 of balanced_split(tensor.numel(), N) (ddp/balanced_split.h). All ranks
// pass the same shape, dtype and op. Sums are formed in the tensor's dtype or better; those of
// integers are exact, and wrap around where they are too large for the dtype. An average divides the
// sum, not its terms, of which the smallest would be lost. NaNs, infinities and subnormal numbers are
// kept.
//
// All functions are collective; with one rank they send nothing. Where a message fails, they throw
// c10::Error. Each throws c10::Error before any message for an undefined tensor, a null group, an op
// that is neither sum nor average, an average of integers, or any other dtype.

/// Warm-up. Writes `message` and a newline to `out` and flushes it, in the order of ranks: each
/// rank but the first writes only after the one before it has flushed. It uses point-to-point
/// messages only (ddp::send and ddp::recv of a CPU tensor), between any ranks of the group, and
/// returns after this rank's own line; later ranks may write later. A message may contain
/// any characters, zeros and newlines too.
void print_in_rank_order(std::string_view message, std::ostream& out, const ProcessGroupPtr& group);

/// N-1 steps, one chunk sent in each. Afterwards, on rank r, chunk r of `tensor` holds the sum or
/// average of all ranks' chunks r; its other chunks may hold anything.
void ring_reduce_scatter(at::Tensor tensor, const ProcessGroupPtr& group,
                         ReduceOp op = ReduceOp::kSum);

/// N-1 steps, one chunk sent in each. Afterwards, on all ranks, every chunk r of `tensor` holds bit
/// for bit what chunk r of rank r held before. What the other chunks held is lost.
void ring_all_gather(at::Tensor tensor, const ProcessGroupPtr& group);

/// Replaces `tensor` by its sum or average over all ranks, bitwise equal on all of them, in the two
/// phases above. Each rank sends 2(N-1) times, one chunk each; empty chunks may be skipped.
/// Memory beyond a contiguous tensor, of whatever kind: one chunk and a constant (128 KiB). For a
/// tensor that is not contiguous, two copies more. Between calls it keeps at most one chunk of the last
/// call, and that constant.
void ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op = ReduceOp::kSum);

}  // namespace ddp
