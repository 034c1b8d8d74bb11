#pragma once

#include <string>
#include <vector>

#include "ddp/models/toy_models.h"
#include "support/body.h"
#include "support/training.h"

namespace ddp::testing {

/// Models and dtypes; all of these.
struct ToyModels {
  std::vector<ToyKind> kinds;
  std::vector<at::ScalarType> dtypes = {at::kDouble, at::kFloat};
};

/// Those that compute the same gradients in the same order on all ranks.
const std::vector<ToyKind>& same_order_models();

/// Those with nothing rare about them, in float32.
const ToyModels& plain_models();

/// Five steps of plain SGD of several small models with real layers, on as many ranks as named;
/// each starts with another seed's state on every rank. Hands in parameters and buffers: "trained".
Body toy_body(int ranks, const ToyModels& models, const Factory& make,
              const std::string& charged_to);

/// The parameters are those of one process that trains with the means over all shards, and the
/// buffers those that the rank's own forward has left.
Predicate training_ends_at_the_oracle(const ToyModels& models);

}  // namespace ddp::testing
