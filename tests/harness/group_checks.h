#pragma once

#include "ddp/ranks/fork_ranks.h"
#include "ddp/ranks/process_group.h"

namespace ddp::testing {

/// What every process group must do, whatever its backend and device: all operations of
/// collectives.h, in place and not, blocking and not, by handle and by future, on tensors of
/// several layouts; and training steps with libtorch's own c10d::Reducer average the gradients. All
/// ranks must call it.
void check_group(const ProcessGroupPtr& group, const at::Device& device);

}  // namespace ddp::testing
