#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "ddp/collectives.h"

namespace ddp {

// Stage 04: synchronized batch normalization. Handout: assignments/04_sync_batch_norm/README.md.

class BatchNorm;          // ddp/batch_norm.h: the module that holds the state
struct BatchNormOptions;  // ddp/batch_norm.h

/// The tensors of a batch normalization besides its input: shape [C], each in the input's dtype or
/// in float32 (they may differ), on the input's device. Any may be undefined. A missing weight
/// counts as ones, a missing bias as zeros. Either both running statistics are defined or neither.
struct BatchNormTensors {
  at::Tensor weight = {}, bias = {};
  at::Tensor running_mean = {}, running_var = {};
};

struct SyncBatchNormOptions {
  /// True: the statistics of the global batch. False: the running ones.
  bool training = true;
  /// running = (1 - momentum) * running + momentum * batch, for any number. For a cumulative average
  /// pass 1 / (number of batches so far, with this one).
  double momentum = 0.1;
  /// Added to the variance under the root; > 0.
  double eps = 1e-5;
};

/// Batch normalization over the batches of all ranks together, differentiable once in input, weight
/// and bias:
///
///     output = (input - mean) / sqrt(variance + eps) * weight + bias        for each channel
///
/// input: [N, C], [N, C, L], [N, C, H, W] or [N, C, D, H, W]; float32, float64, half or bfloat16;
/// any strides. N may differ between ranks and may be 0; the other sizes are at least 1 and, like
/// weight and bias, the same on all ranks. The result has the input's shape and dtype. In training, in
/// evaluation and in backward all is computed in float32 or better; only results are rounded.
///
/// Training. mean and variance (biased) are taken for each channel over N, L, H, W, D of all ranks,
/// in float32 or better, and are accurate even if |mean| is much larger than the deviation. Running
/// statistics are updated in place, equally on all ranks, with the global batch's unbiased variance
/// (divided by its count minus one), whether or not anything requires a gradient. No other tensor of
/// the caller's is changed, in forward or in backward, nor per-thread or
/// global state, such as autograd's mode.
///
/// Collective calls in training: ONE in forward, with at most 2C + 1 elements from each rank, and
/// ONE in backward, with at most 2C, if the input requires a gradient (on all ranks or on none).
/// All ranks of the group take part in both, including those without samples and those whose
/// upstream gradient is zero; an undefined one counts as zero. They call them on the thread that
/// calls forward, or runs backward. Where the group is one rank, both may be left out.
///
/// Backward. The input's gradient is that of the sum of all ranks' losses. The gradients of weight
/// and bias are this rank's local sums, as in PyTorch: DDP averages them later. Between forward and
/// backward only the input, or one tensor of its size, and O(C) numbers are kept, and the group: the
/// graph keeps it alive. What happens to the running statistics in between does not matter.
///
/// Evaluation (training = false) communicates nothing and changes nothing. It uses the running
/// statistics or, without any, those of this rank's own batch, as torch.nn.SyncBatchNorm does.
///
/// Throws c10::Error before any communication: undefined input, fewer than 2 or more than 5
/// dimensions, an integer dtype, tensors whose shape, dtype or device does not fit, one running
/// statistic without the other, eps not > 0, a null group. On all ranks, after the forward collective:
/// a global count (samples * positions) of 1 or less. Where a collective fails, the call throws.
/// After an error the running statistics are as before (a module may have counted the batch).
at::Tensor sync_batch_norm(const at::Tensor& input, const BatchNormTensors& tensors,
                           const ProcessGroupPtr& group, const SyncBatchNormOptions& options = {});

/// The same as a module, in place of BatchNorm1d, 2d and 3d: a BatchNorm whose forward() is
/// sync_batch_norm() over `group`. It is created in training mode, in float32, on the CPU.
/// Construction communicates nothing.
///
/// In training mode with track_running_stats each forward adds one to num_batches_tracked and
/// updates the running statistics with options.momentum or, if that is none, with
/// 1 / num_batches_tracked. In evaluation mode nothing is updated or communicated. Throws
/// c10::Error as BatchNorm and sync_batch_norm() do, and at construction for a null group.
std::shared_ptr<BatchNorm> make_sync_batch_norm(const BatchNormOptions& options,
                                                ProcessGroupPtr group);

}  // namespace ddp
