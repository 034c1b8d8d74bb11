#pragma once

#include <array>
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

// The labels of bucketed_ddp's series; each series has one of kIterationParts and one rank.
constexpr const char* kBatchLabel = "local_bs";
constexpr const char* kLengthLabel = "seq_len";
constexpr const char* kVariantLabel = "variant";
constexpr const char* kMegabytesLabel = "bucket_size_mb";  // as published; only of "bucketed"
constexpr const char* kCapLabel = "cap_bytes";             // here; only of "bucketed"
constexpr const char* kPartLabel = "part";

/// The timed parts of an iteration: the whole of it, backward, and finish().
inline constexpr std::array kIterationParts = {"train", "backward", "all-reduce"};

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

/// Measures on real ranks, of which this is one, and saves the result: complete on rank 0.
Result train_on_ranks(const TrainingSettings& settings, const DeviceContext& device_context);

/// The same at its published scale, in virtual time: the same series, of one value each, of one
/// rank, since all do the same. Throws c10::ValueError for flags and calibrations that do not fit,
/// c10::NotImplementedError if no stage is finished.
Result train_at_published_scale(const TrainingSettings& settings);

/// The lines of the published experiment, for each batch, sequence length and bucket size:
///
///     Training DDP model, local_bs: 2, seq_len: 128, bucket_size_mb: 1
///     total time train: tensor([0.7293], device='cuda:0')
///     total time grad all reduce: tensor([0.2165], device='cuda:0')
///     ratio grad all reduce to train time: tensor([0.2969], device='cuda:0')
///
/// in seconds: means over the iterations, the maximum over all ranks. If a cap is not of the
/// published size, the first line gives both. Then follow similar lines for the variants without
/// buckets, with their names. The Reducer waits inside backward: its lines give, instead of the
/// all-reduce, the time of its backward beyond that of "compute only".
std::string training_lines(const Result& result);

}  // namespace ddp
