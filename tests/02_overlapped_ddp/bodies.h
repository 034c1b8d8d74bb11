#pragma once

#include <vector>

#include "support/body.h"

namespace ddp::testing {

/// What ranks do with this stage, the simplest first.
std::vector<Body> training();

/// Toy models: plain_models(), and same_order_models().
std::vector<Body> small_models();
std::vector<Body> all_models();

/// Both.
std::vector<Body> all_bodies();

/// Misuse, which must be refused.
std::vector<Body> misuse();

/// A synchronizer is destroyed while its parameters live on.
std::vector<Body> destruction();

}  // namespace ddp::testing
