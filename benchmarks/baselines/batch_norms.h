#pragma once

#include <memory>
#include <string>

#include "ddp/batch_norm.h"
#include "ddp/collectives.h"

namespace ddp {

// The batch normalizations that the benchmarks of stage 04 compare.

/// The name of stage 04.
constexpr const char* kBatchNormStage = "04_sync_batch_norm";

/// The code of stage 04, whose library must be loaded.
constexpr const char* kStageBatchNorm = "stage";
/// The port of torch.nn.SyncBatchNorm.
constexpr const char* kBaselineBatchNorm = "baseline";
/// libtorch's at::native_batch_norm over this rank's own batch: it does less than the others, and
/// communicates nothing.
constexpr const char* kLocalBatchNorm = "local";

/// Makes one of the above. Throws c10::ValueError for another name, c10::NotImplementedError if the
/// stage is a stub.
std::shared_ptr<BatchNorm> make_batch_norm(const std::string& name, const BatchNormOptions& options,
                                           const ProcessGroupPtr& group);

/// The baseline of stage 04: what PyTorch's torch.nn.SyncBatchNorm does, in C++ (after PyTorch's
/// torch/nn/modules/_functions.py, class SyncBatchNorm, and torch/nn/modules/batchnorm.py).
///
/// Forward in training: each rank's mean, inverse standard deviation and count, 2C + 1 numbers, are
/// gathered from all ranks in one all-gather and combined; backward reduces 2C sums in one
/// all-reduce if the input needs a gradient. On GPUs it uses the operators that PyTorch calls
/// (at::batch_norm_stats() and its family). The CPU has none of them, and nn.SyncBatchNorm rejects
/// CPU tensors: here tensor operations replace them, each with its own pass over memory.
///
/// As in PyTorch: a rank without samples takes part in both collectives, and its weight and bias
/// get no gradient; gradients of weight and bias are local sums; in a world of one, in evaluation,
/// and wherever else there is nothing to synchronize, it is at::batch_norm() of this rank's batch.
/// Unlike in the stage, a global count of 1 or less is no error: its variance is infinite or NaN.
///
/// Throws c10::Error as BatchNorm does, and for a null group.
std::shared_ptr<BatchNorm> make_sync_batch_norm_baseline(const BatchNormOptions& options,
                                                         ProcessGroupPtr group);

}  // namespace ddp
