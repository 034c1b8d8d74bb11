#pragma once

#include <vector>

#include "support/body.h"
#include "support/training.h"

namespace ddp::testing {

/// Calls this stage's factory.
Factory overlapped();

/// What ranks do with this stage, the simplest first.
const std::vector<Body>& training();

/// Toy models: plain_models(), and same_order_models().
const std::vector<Body>& small_models();
const std::vector<Body>& all_models();

/// Both.
const std::vector<Body>& all_bodies();

/// Misuse, which must be refused.
const std::vector<Body>& misuse();

/// A synchronizer is destroyed while its parameters live on.
const std::vector<Body>& destruction();

}  // namespace ddp::testing
