#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/models/model.h"
#include "ddp/network_model.h"
#include "ddp/timeline/simulated_compute.h"
#include "ddp/timeline/timeline.h"
#include "measuring/benchmark.h"
#include "measuring/result.h"
#include "measuring/trainer.h"
#include "measuring/variants.h"
#include "measuring/workload.h"
#include "models/profiles/model_profile.h"

namespace ddp {

/// The cost of each layer of the model that is trained, conv1, conv2, conv3, fc1, fc2, in virtual time, in microseconds. The defaults are invented, but
/// typical of such layers: convolutions take longest.
struct LayerCosts {
  std::array<double, 5> forward_us = {1'000, 1'500, 2'000, 600, 300};
  std::array<double, 5> backward_us = {1'500, 3'000, 4'000, 1'200, 600};
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
std::unique_ptr<LayeredModel> make_layered_model(const LayeredModelOptions& options);

struct TimelineSettings : BenchmarkOptions {
  std::string clock = "virtual";
  std::vector<std::string> variants = {"naive", "flat", "overlapped", "bucketed", "Reducer"};
  NetworkModel network{.alpha_ns = 150'000, .beta_ns_per_byte = 1.0, .launch_overhead_ns = 100'000};
  LayerCosts costs;
  double slower = 0.1;
  Workload workload{.model = "layered"};
  TrainerOptions trainer{{.cap_bytes = std::int64_t{1} << 20}};
  // Of the cluster.
  std::string model = "xl";
  std::string gpu = "A100", link = "pcie3";
  std::int64_t sequence_length = 512;
};

constexpr const char* kTimelineProgram = "timeline";

/// The clock that simulates GPUs.
constexpr const char* kCluster = "cluster";

/// The name of the instant at which a rank's step ends.
constexpr const char* kStepEnd = "step end";

/// The steps of the variants that have code.
struct MeasuredSteps {
  std::vector<std::string> variants;
  at::Tensor seconds;  // [variants, steps], float64: of the slowest rank
};

/// Of each variant, the step of median length: [variants], int64.
at::Tensor median_steps(const MeasuredSteps& measured);

/// What --clock cluster trains: a transformer, as a profile.
ProfiledModel model_on_cluster(const TimelineSettings& settings);

/// Saves the result, and prints it as a table.
void save_steps(const TimelineSettings& settings, const Run& run, const MeasuredSteps& measured);

/// Each measures and draws all steps, saves them, and returns the program's exit code.
int run_by_virtual_clock(const TimelineSettings& settings);
int run_by_real_clock(const TimelineSettings& settings);
int run_by_cluster_clock(const TimelineSettings& settings);

}  // namespace ddp
