#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "ddp/model.h"
#include "ddp/simulation/simulated_compute.h"
#include "ddp/simulation/timeline.h"
#include "harness/variants.h"

namespace ddp {

/// The layers of the model that the benchmark `timeline` trains.
constexpr std::array kLayerNames = {"conv1", "conv2", "conv3", "fc1", "fc2"};

/// The cost of each layer in virtual time, in microseconds. The defaults are invented, but
/// typical of such layers: convolutions take longest.
struct LayerCosts {
  std::array<double, kLayerNames.size()> forward_us = {1'000, 1'500, 2'000, 600, 300};
  std::array<double, kLayerNames.size()> backward_us = {1'500, 3'000, 4'000, 1'200, 600};
};

struct LayeredModelOptions {
  std::uint64_t seed = 0;  // of the weights
  /// Told what each layer costs, without which layers are drawn in real time.
  ComputeListener compute = nullptr;
  LayerCosts costs = {};
  std::shared_ptr<Timeline> timeline = nullptr;
};

/// Makes a small convolutional network from images [n, 3, 32, 32] to scores [n, 1000]. As in the
/// networks that data-parallel training was made for, the first layers have much to compute and few
/// parameters, and the last ones the opposite: backward, which begins with the last layer, has the
/// large gradients ready early. Float32 on the CPU.
///
/// Without `compute`, every layer's forward and backward is recorded on the timeline.
std::unique_ptr<Model> make_layered_model(const LayeredModelOptions& options);

/// Its layers as units, which use the model.
std::vector<ModelUnit> layers_of(const Model& layered);

}  // namespace ddp
