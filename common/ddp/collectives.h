#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp {

/// libtorch's own process group, and its handle of a running operation: what you learn here holds
/// there.
using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// How the ranks' values are combined. kAverage is defined for floating point only.
enum class ReduceOp { kSum, kAverage, kMin, kMax };

// These functions hide the ceremony of c10d, which takes a vector of tensors and an options struct
// for everything. All ranks of the group must make the same calls in the same order, with tensors
// of equal shape, dtype and strides: what is sent is the memory, in the order in which it lies there,
// so the same shape laid out otherwise arrives with its values in another order. `tensor` is used in
// place and must be dense, without gaps between its elements (and contiguous for Gloo's send and
// recv). For any other send tensor.contiguous(), which is a copy then, and copy the result back.
// Each function throws c10::Error: before any communication for an undefined tensor or a rank outside
// the group, later if communication fails.

/// Replaces `tensor` by its sum (or `op`) over all ranks; returns when the result is there.
void all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op = ReduceOp::kSum);

/// Starts an all-reduce and returns at once. Until wait() on the handle returns, `tensor` is in
/// flight and must be neither read nor written. Every handle must be waited for, even if the result
/// is not needed.
[[nodiscard]] WorkPtr all_reduce_async(at::Tensor tensor, const ProcessGroupPtr& group,
                                       ReduceOp op = ReduceOp::kSum);

/// Replaces `tensor` on every rank by that of rank `root`.
void broadcast(at::Tensor tensor, const ProcessGroupPtr& group, int root = 0);

/// Sends `tensor` to rank `peer`, or receives into it. The blocking forms return when the transfer
/// is complete. A send may complete only with its recv, so ranks that all send first deadlock. Until
/// wait() on the handle returns, a tensor that is being received must be neither read nor written,
/// one that is being sent not written. Wait once for each handle: with Gloo a second wait would
/// catch another message. Several threads of a rank may send and receive at once, but not with the same
/// peer in the same direction.
void send(at::Tensor tensor, int peer, const ProcessGroupPtr& group, int tag = 0);
void recv(at::Tensor tensor, int peer, const ProcessGroupPtr& group, int tag = 0);
[[nodiscard]] WorkPtr send_async(at::Tensor tensor, int peer, const ProcessGroupPtr& group,
                                 int tag = 0);
[[nodiscard]] WorkPtr recv_async(at::Tensor tensor, int peer, const ProcessGroupPtr& group,
                                 int tag = 0);

/// Returns the `input`s of all ranks, in rank order along a new first dimension:
/// [world size, *input.shape].
at::Tensor all_gather(const at::Tensor& input, const ProcessGroupPtr& group);

/// Starts a reduce-scatter: `input`, a flat tensor, is cut into as many equal chunks as there are
/// ranks, and `output` becomes the sum (or `op`) over all ranks of the chunk with this rank's number.
/// Both are in flight until wait() on the handle returns: `input` must not be written, `output` be
/// neither read nor written. Throws c10::Error before any communication if `input` is not `output`'s
/// elements times the world size.
[[nodiscard]] WorkPtr reduce_scatter_async(at::Tensor output, at::Tensor input,
                                           const ProcessGroupPtr& group,
                                           ReduceOp op = ReduceOp::kSum);

/// Starts its inverse: `output`, a flat tensor, becomes the `input`s of all ranks, one after the other
/// in the order of ranks. In flight and errors as above.
[[nodiscard]] WorkPtr all_gather_async(at::Tensor output, at::Tensor input,
                                       const ProcessGroupPtr& group);

/// Returns when every rank has called it.
void barrier(const ProcessGroupPtr& group);

}  // namespace ddp
