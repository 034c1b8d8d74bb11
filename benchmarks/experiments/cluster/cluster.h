#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measuring/on_cluster.h"

namespace ddp {

/// What the program `cluster` can do, each with flags of its own.
struct ClusterStudy {
  std::string name;
  const char* what;  // for --help
  /// Adds its flags; what comes back runs it.
  std::function<std::function<void()>(CLI::App& line, int argc, char** argv)> add;
};

/// To be called before main(): a file is all that a study takes. Always true.
bool register_study(ClusterStudy study);

/// The flags --impl, --output and --preset.
void add_study_flags(CLI::App& line, BenchmarkOptions& options, int argc, char** argv);

/// A transformer that is trained on more and more GPUs.
struct ScalingSettings : BenchmarkOptions {
  SequenceBatch sequences{.batch = 4, .length = 512};
  ClusterFlags cluster{.gpus = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096},
                       .gpus_per_node = 8,
                       .gpu = "A100",
                       .link = "nvlink3",
                       .between = "infiniband4x100"};
  double efficiency = 0.5;
  bool half = false;

  /// Tensors of half the bytes move twice as fast.
  PublishedHardware hardware() const;
  /// As a result has them.
  Parameters parameters() const;
};

/// The flags of all but `half`, and --shape.
void add_flags(CLI::App& line, ScalingSettings& settings, int argc, char** argv);

}  // namespace ddp
