#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ddp/models/toy_models.h"
#include "grader/scenario.h"
#include "grader/training.h"

// Small models with real layers, and what they must come to.

namespace ddp::testing {

/// The gradients every rank must end with, computed in one process without communication: the mean
/// over the ranks of the gradients of their shards, from the same state. That covers batch
/// normalization in training mode, and branches that only some ranks take; a gradient undefined on
/// some ranks counts as zero there.
class Oracle {
 public:
  /// `options.rank` is ignored: there is one replica of the model for each rank.
  Oracle(ToyKind kind, const ToyOptions& options, int world_size);

  struct Gradient {
    at::Tensor mean;       // undefined if no rank has one
    at::Tensor magnitude;  // the mean over the ranks of |gradient|: the scale of rounding errors
    at::Tensor local;      // rank `rank`'s own, may be undefined
  };

  /// For every trainable parameter, tied ones once, on the batches of `step`; `rank` is the
  /// caller's.
  std::vector<Gradient> gradients(int step, int rank);

  /// One step of SGD on all replicas with the gradients of the last call.
  void sgd_step(double learning_rate);

  /// The trainable parameters, which are the same in all replicas, and the buffers of a rank's.
  std::vector<NamedTensor> state(int rank) const;

 private:
  ToyOptions options_;
  std::vector<std::unique_ptr<Model>> replicas_;
  std::vector<at::Tensor> last_means_;
};

/// The parameters that require a gradient, tied ones once, in order.
std::vector<NamedTensor> trainable(const std::vector<NamedTensor>& parameters);

/// Models and dtypes; all of these.
struct ToyModels {
  std::vector<ToyKind> kinds;
  std::vector<at::ScalarType> dtypes = {at::kDouble, at::kFloat};
};

/// Those that compute the same gradients in the same order on all ranks.
const std::vector<ToyKind>& same_order_models();

/// Those without edge cases, in float32.
const ToyModels& plain_models();

/// Five steps of plain SGD of several small models with real layers, on as many ranks as named;
/// each starts with another seed's state on every rank. Hands in parameters and buffers: "trained".
Scenario toy_scenario(int ranks, const ToyModels& models, const Factory& make,
                      const std::string& charged_to);

/// The parameters are those of one process that trains with the means over all shards, and the
/// buffers those that the rank's own forward has left.
Predicate training_ends_at_the_oracle(const ToyModels& models);

}  // namespace ddp::testing
