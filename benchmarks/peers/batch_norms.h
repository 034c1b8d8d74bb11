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
constexpr const char* kPeerBatchNorm = "peer";
/// libtorch's at::native_batch_norm over this rank's own batch: it does less than the others, and
/// communicates nothing.
constexpr const char* kLocalBatchNorm = "local";

/// Makes one of the above. Throws c10::ValueError for another name, c10::NotImplementedError if the
/// stage is a stub.
std::shared_ptr<BatchNorm> make_batch_norm(const std::string& name, const BatchNormOptions& options,
                                           const ProcessGroupPtr& group);

}  // namespace ddp
