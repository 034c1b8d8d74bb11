#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp {

/// The process group and the handle of a running operation are libtorch's own: what is learnt here
/// holds there.
using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// How ranks' values are combined. Average is defined for floating point only.
enum class ReduceOp { kSum, kAverage, kMin, kMax };

// These functions spare the ceremony of c10d, which takes a vector of tensors and an options struct
// for everything. All ranks of the group must make the same calls in the same order, with tensors
// of equal shape and dtype. `tensor` is used in place and must be contiguous where the backend says
// so (Gloo's send and recv do). Each throws c10::Error before it communicates for an undefined
// tensor or a rank outside the group, and later when communication fails.

/// Replaces `tensor` by its sum (or `op`) over all ranks; returns when that is done.
void all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op = ReduceOp::kSum);

/// Starts an all-reduce and returns at once. Until `wait()` on the result returns, `tensor` is in
/// flight: it must neither be read nor written. The handle must be waited for exactly as if the
/// result were needed.
[[nodiscard]] WorkPtr all_reduce_async(at::Tensor tensor, const ProcessGroupPtr& group,
                                       ReduceOp op = ReduceOp::kSum);

/// Replaces `tensor` on every rank by rank `root`'s.
void broadcast(at::Tensor tensor, const ProcessGroupPtr& group, int root = 0);

/// Sends `tensor` to rank `peer`, or receives into it. The blocking forms return when the transfer
/// is complete; a send may complete only with its recv, so ranks that all send first wait for each
/// other for ever.
void send(at::Tensor tensor, int peer, const ProcessGroupPtr& group, int tag = 0);
void recv(at::Tensor tensor, int peer, const ProcessGroupPtr& group, int tag = 0);
[[nodiscard]] WorkPtr send_async(at::Tensor tensor, int peer, const ProcessGroupPtr& group,
                                 int tag = 0);
[[nodiscard]] WorkPtr recv_async(at::Tensor tensor, int peer, const ProcessGroupPtr& group,
                                 int tag = 0);

/// The gathered `input`s of all ranks, one after the other along a new first dimension: [world,
/// *input.shape].
at::Tensor all_gather(const at::Tensor& input, const ProcessGroupPtr& group);

/// Returns when every rank has called it.
void barrier(const ProcessGroupPtr& group);

}  // namespace ddp
