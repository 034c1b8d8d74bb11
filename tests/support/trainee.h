#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/gradient_synchronizer.h"
#include "ddp/models/toy_models.h"
#include "support/ranks.h"

// What the tests of stages 01-03 share: a model with the synchronizer under test.

namespace ddp::testing {

/// Calls a stage's factory, such as make_naive_ddp. Use a lambda that calls it, never the function
/// itself: its address is unknown until the stage's library is loaded.
using MakeSynchronizer = std::function<std::unique_ptr<GradientSynchronizer>(
    const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
    const ProcessGroupPtr& group)>;

/// A toy model on a rank, with the synchronizer under test.
struct Trainee {
  Trainee(Rank& rank, ToyKind kind, const ToyOptions& options, const MakeSynchronizer& make);

  /// Computes the gradients of this rank's batch of `step`; they add to the existing ones.
  void backward(int step);

  ToyKind kind;
  ToyOptions options;
  int rank;
  std::unique_ptr<Model> model;
  std::vector<NamedTensor> parameters;  // trainable ones, tied ones once
  std::unique_ptr<GradientSynchronizer> synchronizer;
};

/// Options with the run's seed and device.
ToyOptions toy_options(const Rank& rank, at::ScalarType dtype);

/// Sets all gradients to none, or to zero where they exist.
void clear_gradients(const std::vector<NamedTensor>& parameters, bool to_none);

/// `gradient`, or zeros if it is undefined: a gradient that no rank has may be either.
at::Tensor or_zero(const at::Tensor& gradient, const at::Tensor& like);

/// "the gradient of fc1.weight (model: tied weights, float32)".
std::string gradient_name(const std::string& parameter, ToyKind kind, at::ScalarType dtype);

}  // namespace ddp::testing
