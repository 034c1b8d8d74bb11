#pragma once

#include <string>
#include <vector>

namespace ddp::testing {

/// What is wrong with what clip_grad_norm() returned on the rank with number `place`; empty if nothing is.
/// `squares`: of each rank's shards' gradients; `tolerance` is relative; `whose`: "the gradients of all
/// units together". Where another norm fits, the message says which.
std::string wrong_norm(double norm, const std::vector<double>& squares, std::size_t place,
                       double tolerance, const std::string& whose);

}  // namespace ddp::testing
