#pragma once

#include <vector>

#include "support/body.h"

namespace ddp::testing {

/// What ranks do with buckets of some 300 bytes, of one parameter each, and of one for each dtype;
/// the simplest first. All ranks compute the same gradients in the same order.
const std::vector<Body>& same_order();

/// Ranks that take different branches, or use layers in other orders.
const std::vector<Body>& other_orders();

/// All of these.
const std::vector<Body>& overlapping();

/// With overlap = false.
const std::vector<Body>& without_overlap();

/// Toy models: plain_models(), same_order_models(), and the one that is not among them.
const std::vector<Body>& small_models();
const std::vector<Body>& all_models();
const std::vector<Body>& branching_models();

/// Models of layers that take time, with several caps.
const std::vector<Body>& timed();

const std::vector<Body>& misuse();
const std::vector<Body>& destruction();
const std::vector<Body>& memory();

}  // namespace ddp::testing
