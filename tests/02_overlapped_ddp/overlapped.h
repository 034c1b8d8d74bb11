#pragma once

#include <vector>

#include "support/chain_model.h"
#include "support/trainee.h"

namespace ddp::testing {

/// Makes the synchronizer under test.
MakeSynchronizer overlapped();

/// The toy models in which all ranks produce the same gradients in the same order: all except the
/// one whose ranks take different branches.
const std::vector<ToyKind>& same_order_models();

/// Layers of these sizes, which must all be different.
std::vector<ChainLayer> layers_of(std::initializer_list<std::int64_t> elements);

/// After backward of `step` and finish(): the gradients of a ChainModel are the means over the
/// ranks. `what` names the step in the message.
void expect_chain_means(Rank& rank, const ChainModel& model, int step, const std::string& what);

}  // namespace ddp::testing
