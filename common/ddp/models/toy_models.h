#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/models/model.h"

namespace ddp {

/// Models that tests can check exactly in milliseconds. Each has one property that data-parallel
/// code can get wrong.
enum class ToyKind {
  kMlp,              // nothing special
  kFrozenBias,       // a bias that requires no gradient
  kUnusedParameter,  // a parameter that no forward uses: its gradient stays undefined on every rank
  kTiedWeights,      // one weight used by two layers, and listed twice
  kRankBranch,       // a branch that only odd ranks take: undefined gradients on even ranks
  kBatchNorm,        // running statistics: buffers that forward changes
};

struct ToyOptions {
  at::ScalarType dtype = at::kDouble;
  at::Device device = at::kCPU;
  int rank = 0;            // decides whether kRankBranch takes its branch
  std::uint64_t seed = 0;  // of weights, buffers and data
};

/// One rank's part of a global batch.
struct Batch {
  at::Tensor input;   // [8, 6]
  at::Tensor target;  // [8, 4]
};

/// A model from [n, 6] to [n, 4] in training mode. Weights and buffers depend on `options.seed`
/// alone: the same seed gives bitwise equal values on every rank, and the float32 model is the
/// rounded float64 one. Buffers start at random values too, as after some training, so that models
/// of two seeds differ in all of their state.
std::unique_ptr<Model> make_toy_model(ToyKind kind, const ToyOptions& options);

const std::vector<ToyKind>& all_toy_models();

/// Its name in messages, such as "frozen bias".
std::string to_string(ToyKind kind);

/// The batch of `rank` in `step`; it depends on (options.seed, rank, step) alone, not on
/// options.rank.
Batch make_toy_batch(const ToyOptions& options, int rank, int step);

/// The mean squared error over the batch, a scalar. All activations are smooth, so rounding cannot
/// cross a kink.
at::Tensor toy_loss(Model& model, const Batch& batch);

}  // namespace ddp
