#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ddp/model.h"
#include "harness/benchmark.h"
#include "harness/workload.h"

namespace ddp {

/// A transformer (models/transformer.h) as a Trainer takes it: it maps tokens [n, length] to scores of
/// the next token, [n * length, vocabulary]. Several may share one transformer.
std::unique_ptr<Model> make_language_model(std::shared_ptr<Model> transformer);

/// A rank's sequences.
struct TokenShape {
  std::int64_t batch, length;
  std::int64_t vocabulary;
};

/// Random tokens, for each rank its own: inputs [batch, length] and, as labels [batch * length],
/// the token after each.
LabelledBatch make_token_batch(const TokenShape& shape, std::uint64_t seed,
                               const DeviceContext& device_context);

/// The published experiment's buckets were of so many MB (2^20 bytes) of xl's gradients. For the
/// model "reduced", a cap that is the same part of its own gradients; for the others, those MB.
std::int64_t cap_of_model(std::int64_t megabytes, const std::string& model);

/// What is trained at the same time.
struct TrainedModels {
  std::string model;
  std::size_t of_each_rank = 1;
};

/// One line, if `device`'s memory is not enough for the models of so many ranks; else empty. Each
/// takes at least a weight, a gradient, AdamW's two moments, and a bucket's place for each
/// parameter, all float32. Activations come on top.
std::string why_no_memory(const TrainedModels& trained, int ranks, const at::Device& device);

/// Call it when the command line has been read: before ranks begin to train on a CPU without enough
/// memory, it says so in that line on stderr, and returns kRefused. Otherwise returns 0.
int check_memory(const BenchmarkOptions& options, const TrainedModels& trained);

}  // namespace ddp
