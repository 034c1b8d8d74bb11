#include "harness/language_model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "ddp/ranks/environment.h"
#include "harness/memory.h"
#include "models/transformer.h"

namespace ddp {
namespace {

constexpr const char* kScaled = "reduced";
constexpr const char* kPublished = "xl";

std::int64_t parameters_of(const std::string& model) {
  return parameter_count(transformer_shape(model));
}

// How many ranks use this machine's memory, as far as the parent process knows: all ranks that it
// forks; under a launcher, those up to its own.
int ranks_of_this_machine(const BenchmarkOptions& options) {
  try {
    if (const auto environment = read_launch_environment()) {
      return environment->local_rank + 1;
    }
  } catch (const c10::Error&) {
    return 1;  // launch() reports the error
  }
  return options.world_size;
}

// "31.9 GB", with 10^9 bytes to the GB.
std::string in_gigabytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GB", 1e-9 * static_cast<double>(bytes));
  return text;
}

}  // namespace

LabelledBatch make_token_batch(const TokenShape& shape, std::uint64_t seed,
                               const DeviceContext& device_context) {
  at::Generator generator = at::detail::createCPUGenerator(seed + device_context.group->getRank());
  const at::Tensor tokens =
      at::randint(shape.vocabulary, {shape.batch, shape.length + 1}, generator, at::kLong)
          .to(device_context.device);
  return {.inputs = tokens.narrow(1, 0, shape.length).contiguous(),
          .labels = tokens.narrow(1, 1, shape.length).flatten()};
}

std::int64_t cap_of_model(std::int64_t megabytes, const std::string& model) {
  const std::int64_t bytes = megabytes << 20;
  if (model != kScaled) {
    return bytes;
  }
  const double part = static_cast<double>(bytes) / static_cast<double>(parameters_of(kPublished));
  return std::max(std::int64_t{1},
                  std::int64_t{std::llround(part * static_cast<double>(parameters_of(model)))});
}

std::string why_no_memory(const TrainedModels& trained, int ranks, const at::Device& device) {
  constexpr std::int64_t kTensors = 5;
  const auto models = static_cast<std::int64_t>(trained.of_each_rank);
  const std::int64_t needed =
      ranks * models * kTensors * std::int64_t{sizeof(float)} * parameters_of(trained.model);
  const std::int64_t available = available_memory(device);
  if (needed <= available) {
    return "";
  }
  std::ostringstream text;
  text << "training " << trained.model << " takes at least " << in_gigabytes(needed)
       << " of memory (ranks here: " << ranks << ", models of each: " << models
       << "; weights, gradients, AdamW's state and buckets), and there are "
       << in_gigabytes(available) << "; choose a smaller --model"
       << (models > 1 ? ", or --sequential, which needs one model of each rank" : "");
  return text.str();
}

int check_memory(const BenchmarkOptions& options, const TrainedModels& trained) {
  if (options.device != "cpu") {
    return 0;
  }
  const std::string problem = why_no_memory(trained, ranks_of_this_machine(options), at::kCPU);
  if (problem.empty()) {
    return 0;
  }
  std::fprintf(stderr, "%s\n", problem.c_str());
  return kRefused;
}

}  // namespace ddp
