#pragma once

#include <string>
#include <vector>

#include "ddp/network_model.h"
#include "experiments/timeline/layered_model.h"
#include "harness/benchmark.h"
#include "harness/trainer.h"
#include "harness/workload.h"

namespace ddp {

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

/// The clock that simulates GPUs.
constexpr const char* kCluster = "cluster";

/// The name of the instant at which a rank's step ends.
constexpr const char* kStepEnd = "step end";

}  // namespace ddp
