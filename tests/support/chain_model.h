#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ddp/model.h"
#include "ddp/simulation/virtual_clock.h"
#include "support/ranks.h"

namespace ddp::testing {

/// One layer of a ChainModel: a parameter of `elements` elements, and the cost of the layer.
struct ChainLayer {
  std::int64_t elements = 1;
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
  at::ScalarType dtype = at::kFloat;
  bool trainable = true;
};

/// Layers in sequence, each with one parameter, so that gradients become ready in exactly the
/// reverse order of the parameters, each at a time known in advance:
///
///     ready_i = end of forward + the backward_ns of layers P-1 ... i
///
/// The gradient of parameter i in `step` on `rank` is gradient(i, rank, step): its values differ
/// between layers, ranks, steps and elements.
class ChainModel {
 public:
  ChainModel(Rank& rank, std::vector<ChainLayer> layers);

  /// All parameters, "layer 0" first.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

  /// Forward of `step`: returns the loss, multiplied by `scale` (1/k for one of k micro-batches).
  at::Tensor loss(int step, double scale = 1);

  /// What backward of loss(step) adds to a parameter's gradient on `rank`.
  at::Tensor gradient(std::size_t layer, int rank, int step) const;

  /// The mean of gradient() over all ranks.
  at::Tensor mean_gradient(std::size_t layer, int step) const;

 private:
  Rank& rank_;
  std::vector<ChainLayer> layers_;
  std::vector<NamedTensor> parameters_;
};

}  // namespace ddp::testing
