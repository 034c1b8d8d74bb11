#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ddp/collectives.h"
#include "ddp/gradient_synchronizer.h"

namespace ddp {

// Stage 03: bucketed DDP. Handout: assignments/03_bucketed_ddp/README.md.
//
// The arguments, the broadcast at construction and the errors are those of stage 01
// (01_naive_ddp/naive_ddp.h). For gradient ownership, NoSync and lifetime see GradientSynchronizer.

/// The plan: which parameters share a bucket. A pure function of shapes, dtypes, devices and
/// requires_grad; it neither allocates nor communicates.
///
/// Parameters are visited in reverse order, last index first, because backward produces gradients
/// in roughly that order. Each goes into the open bucket of its dtype and device; one is open for
/// each such pair at a time. A bucket is closed as soon as its bytes (elements * element size)
/// reach `cap_bytes`, so its last member may take it past the cap. Buckets still open at the end
/// are closed as they are.
///
/// Returns indices into `parameters`, within a bucket in the order visited (descending). Buckets
/// are ordered by their last member, descending: gradients that come in reverse order complete them
/// in this order. Frozen parameters are in no bucket, every other parameter is in exactly one. A
/// tensor that is listed more than once (tied weights) counts only at its smallest index, because
/// its gradient is complete only when backward gets there. Without trainable parameters there is no
/// bucket.
///
/// Example: float32 weights of 100, 500 and 250 elements (400, 2000 and 1000 bytes).
///     cap_bytes   104  (0.0001 MiB)  {{2}, {1}, {0}}
///     cap_bytes  1677  (0.0016 MiB)  {{2, 1}, {0}}
///     cap_bytes 10485  (0.01 MiB)    {{2, 1, 0}}             1 MiB = 2^20 bytes
///
/// Throws c10::Error for cap_bytes <= 0, an empty list, an undefined tensor, or a trainable one
/// that is not a leaf (the message names its index).
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<at::Tensor>& parameters,
                                                     std::int64_t cap_bytes);

struct BucketedDdpOptions {
  /// A bucket is full once it holds at least this many bytes; > 0. The default is PyTorch's 25 MiB.
  std::int64_t cap_bytes = std::int64_t{25} << 20;
  /// True: a bucket's all-reduce starts during backward, as early as the rules below allow. False:
  /// finish() reduces the same buckets in the same order, one blocking all-reduce after the other.
  bool overlap = true;
};

/// One all-reduce for each bucket of assign_buckets(parameters, options.cap_bytes): a flat tensor
/// of exactly the bucket's elements, in its dtype, on its device. The plan is made once, at
/// construction.
///
/// Construction is collective: it broadcasts rank 0's parameters and buffers, bit for bit.
///
/// Buckets are launched in plan order on every rank, in whatever order gradients become ready.
/// Bucket b starts when all its gradients are ready (on_gradient_ready, ddp/gradient_hooks.h) and
/// bucket b - 1 has started; a bucket that is full early waits its turn. It starts before the hook of
/// the gradient that it waited for returns. Nothing waits inside backward. From the moment a
/// gradient is ready to the end of finish() it belongs to the synchronizer, which may copy it at
/// once or when its bucket starts. Ranks may take different branches.
///
/// finish() is collective. It launches the remaining buckets in plan order, waits for all, and
/// leaves gradient = sum over ranks of parameter.grad() / world size. Whatever a gradient holds
/// counts, even if the last backward did not touch it; an undefined gradient counts as zero. Every
/// finish() outside NoSync reduces every bucket exactly once, since no rank can know what is ready
/// on the others.
///
/// NoSync: inside the scope hooks launch nothing. At most one backward outside NoSync may run
/// between two calls of finish(), because a second would add to gradients in flight: its hook
/// throws c10::Error, and so does backward(). (Need not be noticed: one for other
/// gradients alone, or inside NoSync, or any with overlap = false.)
///
/// The averages are copied back, or parameter.grad() becomes a view of its bucket. Memory: all
/// tensors that are alive at once, besides the gradients, take no more than the trainable
/// parameters' bytes plus one bucket.
///
/// Errors besides stage 01's: options.cap_bytes <= 0; a trainable parameter whose dtype or device
/// is no longer that of its bucket (thrown by its hook or finish(), naming its index in
/// `parameters`). Like a sparse gradient they are found when a gradient comes into its bucket:
/// others may be in flight by then.
///
/// Destruction removes the hooks: a later backward communicates nothing.
std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(std::vector<at::Tensor> parameters,
                                                        std::vector<at::Tensor> buffers,
                                                        ProcessGroupPtr group,
                                                        const BucketedDdpOptions& options = {});

}  // namespace ddp
