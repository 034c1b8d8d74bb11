#include "measuring/workload.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>

#include "ddp/launching/environment.h"
#include "measuring/command_line.h"
#include "models/resnet.h"
#include "models/small_models.h"
#include "models/transformer.h"

namespace ddp {
namespace {

std::string shape_in_words(const at::Tensor& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.sizes()) {
    text += (text.empty() ? "" : "x") + std::to_string(size);
  }
  return text.empty() ? "scalar" : text;
}

bool is_transformer(const std::string& model) {
  return std::ranges::count(transformer_names(), model) > 0;
}

constexpr std::int64_t kMlpWidth = 1024;
constexpr std::size_t kMlpLayers = 8;
constexpr std::int64_t kClasses = 1000;  // the MLP has a few more outputs, which no label uses

}  // namespace

ModelSummary summarize_model(const std::vector<NamedTensor>& parameters) {
  ModelSummary summary;
  for (const auto& [name, parameter] : parameters) {
    const std::int64_t elements = parameter.numel();
    ++summary.tensors;
    summary.total += elements;
    summary.trainable += parameter.requires_grad() ? elements : 0;
    if (elements > summary.largest_elements) {
      summary.largest = name;
      summary.largest_shape = shape_in_words(parameter);
      summary.largest_elements = elements;
    }
  }
  return summary;
}

Parameters describe(const ModelSummary& summary) {
  return {{"parameters", summary.total},
          {"trainable_parameters", summary.trainable},
          {"parameter_tensors", summary.tensors},
          {"largest_parameter", summary.largest},
          {"largest_parameter_shape", summary.largest_shape},
          {"largest_parameter_elements", summary.largest_elements}};
}

void add_flags(CLI::App& line, Workload& workload, const std::vector<std::string>& models) {
  Size& size = workload.size;
  add_choice(line, "--model", workload.model, "What is trained", models);
  add_number(line, "--batch-size", size.batch, "Samples of each rank");
  add_number(line, "--image-size", size.image, "Pixels of an image's side", 32);
  add_number(line, "--steps", size.steps, "Measured steps of each variant");
  add_number(line, "--warmup", size.warmup, "Steps before them", 0);
}

std::unique_ptr<LayeredModel> make_mlp(std::uint64_t seed, at::Device device) {
  return make_mlp(std::vector<std::int64_t>(kMlpLayers + 1, kMlpWidth), seed, device);
}

std::unique_ptr<Model> make_model(const std::string& name, std::uint64_t seed, at::Device device) {
  if (name == kMlp) {
    return make_mlp(seed, device);
  }
  if (is_transformer(name)) {
    return make_transformer(transformer_shape(name), {.seed = seed, .device = device});
  }
  return make_resnet(name, seed, device);
}

LabelledBatch make_batch(const Workload& workload, std::uint64_t seed,
                         const DeviceContext& device_context) {
  const auto [batch, image, steps, warmup] = workload.size;
  const at::Device& device = device_context.device;
  at::Generator generator = at::detail::createCPUGenerator(seed + device_context.group->getRank());
  if (is_transformer(workload.model)) {
    const at::Tensor tokens = at::randint(transformer_shape(workload.model).vocabulary,
                                          {batch, workload.length + 1}, generator, at::kLong)
                                  .to(device);
    return {.inputs = tokens.narrow(1, 0, workload.length).contiguous(),
            .labels = tokens.narrow(1, 1, workload.length).flatten()};
  }
  // The last layers of a ResNet reduce every 32x32 pixels to one.
  TORCH_CHECK_VALUE(workload.model == kMlp || batch > 1 || image > 32, "one image of ", image, "x",
                    image,
                    " leaves one value in a channel, which batch "
                    "normalization cannot train with: give --batch-size 2, or --image-size 33");
  const std::vector<std::int64_t> shape = workload.model == kMlp
                                              ? std::vector<std::int64_t>{batch, kMlpWidth}
                                              : std::vector<std::int64_t>{batch, 3, image, image};
  const at::Tensor inputs = at::randn(shape, generator);
  const at::Tensor labels = workload.regression
                                ? at::rand({batch, kClasses}, generator)
                                : at::randint(kClasses, {batch}, generator, at::kLong);
  return {.inputs = inputs.to(device), .labels = labels.to(device)};
}

Parameters describe(const Workload& workload, const std::vector<NamedTensor>& parameters) {
  const auto [batch, image, steps, warmup] = workload.size;
  return {{"model", workload.model},
          {"parameters", summarize_model(parameters).total},
          {"parameter_tensors", static_cast<std::int64_t>(parameters.size())},
          {"batch_size", batch},
          {"image_size", image},
          {"steps", steps},
          {"warmup", warmup}};
}

namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The number after `key` in /proc/meminfo, in bytes.
std::int64_t of_the_machine(const std::string& key) {
  std::ifstream words("/proc/meminfo");
  for (std::string word; words >> word;) {
    if (std::int64_t kibibytes = 0; word == key + ":" && words >> kibibytes) {
      return kibibytes << 10;
    }
  }
  return kNoLimit;
}

// The memory limit of the control group (version 2) that a container's processes see as their own;
// none if there is no such file, or if it says "max".
std::int64_t limit_of_the_container() {
  std::int64_t bytes = kNoLimit;
  std::ifstream("/sys/fs/cgroup/memory.max") >> bytes;
  return bytes > 0 ? bytes : kNoLimit;
}

// Bytes that a new process can still allocate where `device`'s tensors live: in the machine's memory, up
// to a container's limit, or in the GPU's, for which CUDA must be loaded.
std::int64_t available_memory(const at::Device& device) {
  if (device.is_cpu()) {
    return std::min(of_the_machine("MemAvailable"), limit_of_the_container());
  }
  const auto [free, total] = c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  return static_cast<std::int64_t>(free);
}

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
