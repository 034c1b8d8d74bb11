#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/meters/statistics.h"
#include "ddp/models/model.h"
#include "measuring/benchmark.h"
#include "measuring/result.h"
#include "models/small_models.h"

namespace ddp {

/// How large a model is, in elements.
struct ModelSummary {
  std::int64_t tensors = 0;
  std::int64_t total = 0;      // elements of all parameters
  std::int64_t trainable = 0;  // of those that get a gradient
  // The parameter with the most elements; if there are several, the first.
  std::string largest;
  std::string largest_shape;  // such as "512x512x3x3"
  std::int64_t largest_elements = 0;
};

/// `parameters` must be distinct.
ModelSummary summarize_model(const std::vector<NamedTensor>& parameters);

/// The summary as a result stores it.
Parameters describe(const ModelSummary& summary);

/// Inputs of the model's kind, and the class of each.
struct LabelledBatch {
  at::Tensor inputs;  // [n, ...], float32; of a transformer tokens [n, length], int64
  at::Tensor labels;  // [n], int64; of a transformer the token after each, [n * length]
};

/// How much is trained, and for how long.
struct Size {
  int batch = 1;   // samples per rank
  int image = 0;   // pixels per side; only ResNets use it
  int steps = 1;   // measured steps of each variant
  int warmup = 0;  // before the measured ones
};

/// What a benchmark trains.
struct Workload {
  std::string model;
  Size size = {};
  std::int64_t length = 0;  // tokens of a sequence; only transformers use it
  bool regression = false;  // labels are random scores [n, classes] in [0, 1); not of transformers
};

/// A model of eight layers 1024 wide, with 33.6 MB of gradients. The others are resnet_names() and
/// transformer_names().
constexpr const char* kMlp = "mlp";

/// The flags --model (one of `models`), --batch-size, --image-size, --steps and --warmup.
void add_flags(CLI::App& line, Workload& workload, const std::vector<std::string>& models);

/// The weights depend on the seed alone.
std::unique_ptr<LayeredModel> make_mlp(std::uint64_t seed, at::Device device);
std::unique_ptr<Model> make_model(const std::string& name, std::uint64_t seed, at::Device device);

/// Random data, different on each rank. Throws c10::ValueError if a ResNet cannot be trained on it.
LabelledBatch make_batch(const Workload& workload, std::uint64_t seed,
                         const DeviceContext& device_context);

/// The workload as a result stores it: model, its parameters and tensors, batch size and so on.
Parameters describe(const Workload& workload, const std::vector<NamedTensor>& parameters);

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
