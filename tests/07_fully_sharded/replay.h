#pragma once

#include <string>
#include <vector>

#include "cases.h"
#include "ddp/referee/evidence.h"

namespace ddp::testing {

/// What an unsharded model computes in a case: one process that trains with the mean of all ranks'
/// gradients. Flat, by unit.
struct Replayed {
  struct OfStep {
    std::vector<std::vector<at::Tensor>> outputs;  // by pass and rank; undefined if it throws
    std::vector<at::Tensor> gradients;             // undefined if no backward reached the unit
    double norm = 0;
    std::vector<at::Tensor> parameters;  // at the end
  };
  std::vector<OfStep> steps;
};
const Replayed& replayed(const Case& one);

// Claims on values. Each returns what is wrong, or nothing.

/// After construction a rank has its chunk of rank 0's values, bit for bit, in flat leaves.
std::string shards_are_rank_0s(const Evidence& evidence);

/// Outputs, gradients and parameters are the unsharded model's.
std::string values_are_the_unsharded_models(const Evidence& evidence);

/// What clip_grad_norm() returns is the norm of all units' gradients.
std::string norm_is_that_of_all_units(const Evidence& evidence);

}  // namespace ddp::testing
