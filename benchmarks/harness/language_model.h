#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "harness/benchmark.h"
#include "harness/workload.h"

namespace ddp {

/// A rank's sequences.
struct TokenShape {
  std::int64_t batch, length;
  std::int64_t vocabulary;
};

/// Random tokens, different on each rank: inputs [batch, length] and, as labels [batch * length],
/// the token after each.
LabelledBatch make_token_batch(const TokenShape& shape, std::uint64_t seed,
                               const DeviceContext& device_context);

/// The published experiment gives its bucket sizes in MB (2^20 bytes) for xl's gradients. For the
/// model "reduced", a cap that is the same fraction of its own gradients; for the others,
/// `megabytes`.
std::int64_t cap_of_model(std::int64_t megabytes, const std::string& model);

/// Which models are trained at the same time.
struct TrainedModels {
  std::string model;
  std::size_t of_each_rank = 1;
};

/// An error message of one line if `device` has too little memory for the models of `ranks` ranks;
/// else empty. Each model takes at least a weight, a gradient, AdamW's two moments, and space in a
/// bucket for each parameter, all float32. Activations come on top.
std::string why_no_memory(const TrainedModels& trained, int ranks, const at::Device& device);

/// Call it after the command line has been parsed. If the ranks would train on a CPU with too
/// little memory, prints that message to stderr and returns kRefused. Otherwise returns 0.
int check_memory(const BenchmarkOptions& options, const TrainedModels& trained);

}  // namespace ddp
