#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/gradient_synchronizer.h"
#include "ddp/models/model.h"
#include "measuring/benchmark.h"

namespace ddp {

/// One small step of a stage, which throws if its values are not those that one process computes. Each
/// stage of the extension brings its own, in a file of its name beside this one:
///
///     const bool kRegistered = register_smoke_test({"0N_name", step});
struct SmokeTest {
  std::string stage;
  std::function<void(const DeviceContext&)> step;
};

/// To be called before main(), as above. Always true.
bool register_smoke_test(SmokeTest test);

/// Throws c10::Error, which begins with `what`, unless `found` is `expected`, to a rounding error.
void expect_equal(const std::string& what, const at::Tensor& found, const at::Tensor& expected);

/// One training step of a toy model, whose gradients are averaged by what `make` returns: from rank 0's
/// weights, though each rank begins with its own, to the mean of all ranks' gradients.
using MakeSynchronizer = std::function<std::unique_ptr<GradientSynchronizer>(
    const Model& model, const ProcessGroupPtr& group)>;
void train_toy(const DeviceContext& device_context, const MakeSynchronizer& make);

}  // namespace ddp
