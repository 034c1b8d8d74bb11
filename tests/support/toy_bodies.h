#pragma once

#include <string>
#include <vector>

#include "ddp/models/toy_models.h"
#include "support/body.h"
#include "support/training.h"

namespace ddp::testing {

/// Those that compute the same gradients in the same order on all ranks.
const std::vector<ToyKind>& same_order_models();

/// Five steps of plain SGD of several small models with real layers, on as many ranks as named;
/// each starts with another seed's state on every rank. Hands in parameters and buffers: "trained".
Body toy_body(int ranks, const std::vector<ToyKind>& kinds, const Factory& make,
              const std::string& charged_to);

/// The parameters are those of one process that trains with the means over all shards, and the
/// buffers those that the rank's own forward has left.
Predicate training_ends_at_the_oracle(const std::vector<ToyKind>& kinds);

}  // namespace ddp::testing
