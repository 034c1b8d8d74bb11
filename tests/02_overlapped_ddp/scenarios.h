#pragma once

#include <vector>

#include "grader/scenario.h"

namespace ddp::testing {

/// What ranks do with this stage, the simplest first.
std::vector<Scenario> training();

/// Toy models: plain_models(), and same_order_models().
std::vector<Scenario> small_models();
std::vector<Scenario> all_models();

/// All of these.
std::vector<Scenario> all_scenarios();

/// Misuse, which must be refused.
std::vector<Scenario> misuse();

/// A synchronizer is destroyed while its parameters live on.
std::vector<Scenario> destruction();

}  // namespace ddp::testing
