#pragma once

#include <string>
#include <vector>

#include "03_bucketed_ddp/bucketed_ddp.h"
#include "grader/scenario.h"
#include "grader/training_scenarios.h"

namespace ddp::testing {

/// Calls this stage's factory, and hands in the plan and the options.
Factory bucketed(const BucketedDdpOptions& options);

/// What ranks do with buckets of some 300 bytes, of one parameter each, and of one for each dtype;
/// the simplest first. All ranks compute the same gradients in the same order.
std::vector<Scenario> same_order();

/// The same, and ranks that take different branches, or use layers in other orders.
std::vector<Scenario> overlapping();

/// With overlap = false.
std::vector<Scenario> without_overlap();

/// Toy models: plain_models(), same_order_models(), and the one that is not among them.
std::vector<Scenario> small_models();
std::vector<Scenario> all_models();
std::vector<Scenario> branching_models();

/// Models of layers that take time, with several caps.
std::vector<Scenario> timed();

std::vector<Scenario> misuse();
std::vector<Scenario> destruction();
std::vector<Scenario> memory();

}  // namespace ddp::testing
