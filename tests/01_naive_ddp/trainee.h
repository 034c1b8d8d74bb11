#pragma once

#include <memory>
#include <vector>

#include "01_naive_ddp/naive_ddp.h"
#include "ddp/toy_models.h"
#include "support/ranks.h"

namespace ddp::testing {

/// The two forms of this stage.
enum class Form { kPerParameter, kFlat };

/// A toy model on a rank, with the synchronizer under test.
struct Trainee {
  Trainee(Rank& rank, ToyKind kind, const ToyOptions& options, Form form = Form::kPerParameter);

  /// Computes the gradients of this rank's batch of `step`.
  void backward(int step);

  /// Sets all gradients to none, or to zero where they exist.
  void clear_gradients(bool to_none);

  ToyOptions options;
  int rank;
  std::unique_ptr<Model> model;
  std::vector<NamedTensor> parameters;  // trainable ones, tied ones once
  std::unique_ptr<GradientSynchronizer> synchronizer;
};

/// Options with the run's seed and device.
ToyOptions toy_options(const Rank& rank, at::ScalarType dtype);

/// "the gradient of fc1.weight (model: tied weights, float32)".
std::string gradient_name(const std::string& parameter, ToyKind kind, at::ScalarType dtype);

}  // namespace ddp::testing
