#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "harness/benchmark.h"
#include "harness/interleaved.h"
#include "harness/language_model.h"
#include "harness/published_cluster.h"
#include "harness/variants.h"

namespace ddp {

constexpr const char* kTrainingProgram = "bucketed_ddp";
constexpr const char* kReducerVariant = "Reducer";

/// All that are compared; the first one has several bucket sizes.
extern const std::vector<std::string> kTrainingVariants;

/// The command line of bucketed_ddp, completed from the preset.
struct TrainingSettings : BenchmarkOptions {
  std::string model;
  std::set<std::int64_t> batch_sizes = {2, 4};
  std::set<std::int64_t> sequence_lengths;
  std::set<std::int64_t> bucket_mb = {1, 10, 100, 1000};
  Repetitions repetitions;
  bool interleaved = true;
  ClusterFlags cluster;

  TransformerShape shape() const { return shape_of(cluster, model); }
  std::int64_t cap(std::int64_t megabytes) const { return cap_of_model(megabytes, model); }
  TrainedModels trained() const {
    return {.model = model,
            .of_each_rank = interleaved ? bucket_mb.size() + kTrainingVariants.size() : 1};
  }
};

/// The settings as a result stores them.
Parameters parameters_of(const TrainingSettings& settings);

/// A variant, and its bucket size if it has buckets.
struct Way {
  std::string variant;
  VariantOptions options;
  Parameters labels;
};

/// The ways of training `model` with these variants. The libraries of their stages must be loaded.
std::vector<Way> ways_of(const TrainingSettings& settings, const Model& model,
                         const std::vector<std::string>& variants);

}  // namespace ddp
