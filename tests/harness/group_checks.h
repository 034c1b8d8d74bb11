#pragma once

#include "ddp/ranks/fork_ranks.h"
#include "ddp/ranks/process_group.h"

namespace ddp::testing {

/// What every process group must do, whatever its backend and device: all operations of
/// collectives.h, in place and not, blocking and not, by handle and by future, on tensors of
/// several layouts. All ranks must call it.
void check_collectives(const ProcessGroupPtr& group, const at::Device& device);

/// A training step with libtorch's own c10d::Reducer averages the gradients.
void check_reducer(const ProcessGroupPtr& group, const at::Device& device);

}  // namespace ddp::testing
