#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/gradient_synchronizer.h"
#include "ddp/model.h"
#include "harness/benchmark.h"

namespace ddp {

/// One small step of a stage. Each stage brings its own, in a folder of its name beside this file:
///
///     const bool kRegistered = register_smoke_test({"01_naive_ddp", step});
struct SmokeTest {
  std::string stage;  // the name of its folder
  std::function<void(const DeviceContext&)> step;
};

/// To be called before main(), as above. Always true.
bool register_smoke_test(SmokeTest test);

/// All of them, in the order of the stages' names.
std::vector<SmokeTest> smoke_tests();

/// One training step of a toy model, whose gradients are averaged by what `make` returns.
using MakeSynchronizer = std::function<std::unique_ptr<GradientSynchronizer>(
    const Model& model, const ProcessGroupPtr& group)>;
void train_toy(const DeviceContext& device_context, const MakeSynchronizer& make);

}  // namespace ddp
