#pragma once

#include <string>
#include <vector>

#include "03_bucketed_ddp/bucketed_ddp.h"
#include "support/body.h"
#include "support/training_bodies.h"

namespace ddp::testing {

/// Calls this stage's factory, and hands in the plan and the options.
Factory bucketed(const BucketedDdpOptions& options);

/// What ranks do with buckets of some 300 bytes, of one parameter each, and of one for each dtype;
/// the simplest first. All ranks compute the same gradients in the same order.
std::vector<Body> same_order();

/// The same, and ranks that take different branches, or use layers in other orders.
std::vector<Body> overlapping();

/// With overlap = false.
std::vector<Body> without_overlap();

/// Toy models: plain_models(), same_order_models(), and the one that is not among them.
std::vector<Body> small_models();
std::vector<Body> all_models();
std::vector<Body> branching_models();

/// Models of layers that take time, with several caps.
std::vector<Body> timed();

std::vector<Body> misuse();
std::vector<Body> destruction();
std::vector<Body> memory();

}  // namespace ddp::testing
