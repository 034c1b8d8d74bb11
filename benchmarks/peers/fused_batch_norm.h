#pragma once

#include <memory>

#include "ddp/batch_norm.h"
#include "ddp/collectives.h"

namespace ddp {

/// Stage 04 as fast as memory allows, on the CPU: two passes over memory and one collective forward,
/// and the same backward (channel_passes.h), in place of some sixty tensor operations. The
/// collectives are stage 04's: 2C + 1 numbers of each rank forward, 2C backward, in float64.
///
/// For training in float32; each rank needs a sample. Throws c10::Error otherwise, and for a null
/// group.
std::shared_ptr<BatchNorm> make_fused_batch_norm(const BatchNormOptions& options,
                                                 ProcessGroupPtr group);

}  // namespace ddp
