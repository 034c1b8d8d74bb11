#pragma once

#include <string>

#include "ddp/referee/evidence.h"

// When this stage launches what. Each returns what is wrong, or nothing.

namespace ddp::testing {

/// Outside NoSync, exactly a gradient's own all-reduce is launched between the moment that it is
/// ready and the next one's.
std::string each_is_launched_when_ready(const Evidence& evidence);

/// Gradients that were computed inside NoSync only are launched by finish(), in the order of
/// `parameters`.
std::string owed_gradients_go_in_order(const Evidence& evidence);

}  // namespace ddp::testing
