#pragma once

#include <cstdint>
#include <vector>

#include "support/ranks.h"

namespace ddp::testing {

/// Weights that a loss may use in any order, or not at all: for ranks that take different branches.
/// Backward reaches the gradients in the reverse of the order of use.
class BranchingModel {
 public:
  /// float64 weights; `elements` holds the size of each.
  BranchingModel(Rank& rank, const std::vector<std::int64_t>& elements);

  /// "weight 0" first.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

  /// A loss that uses the weights with these indices, the first one first. Each is used once.
  at::Tensor loss(const std::vector<std::size_t>& order, int step) const;

  /// What backward of a loss of `step` that uses the weight adds to its gradient on `rank`.
  at::Tensor gradient(std::size_t weight, int rank, int step) const;

 private:
  int rank_;
  std::vector<NamedTensor> parameters_;
};

}  // namespace ddp::testing
