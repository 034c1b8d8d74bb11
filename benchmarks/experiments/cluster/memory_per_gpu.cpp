// What a GPU holds of a large model that is trained in half precision with AdamW, over the number of
// GPUs: with stage 03, whose ranks hold everything, with stage 06, whose ranks hold an N-th of
// gradients and optimizer state, and with stage 07, whose ranks hold an N-th of parameters, too. The
// sizes are those of ZeRO's table 1 (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training
// Trillion Parameter Models", SC20).
//
// The code really runs, in one process, on tensors that have shapes and no memory; what they would
// take is counted.
#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <cstdio>

#include "ddp/cluster/meta_memory.h"
#include "experiments/cluster/cluster.h"
#include "measuring/command_line.h"

namespace {

using namespace ddp;

constexpr const char* kMemoryProgram = "memory_per_gpu";
const std::vector<std::string> kMeasured = {"bucketed", "sharded", "fully sharded"};
constexpr std::int64_t kLayers = 400;  // of one parameter each; all sizes are multiples

// Of a transformer's layer by d_model: parameters, for d_model squared, and elements that are kept for a
// token, as ZeRO estimates them (section 3.2: "about 12 × hidden dim × batch × seq length × transformer
// layers").
constexpr std::int64_t kSquares = 12, kKept = 12;

constexpr double kRate = 1e-3, kDecay = 0.01, kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;

struct NoOptions : torch::optim::OptimizerCloneableOptions<NoOptions> {};

// AdamW as large models are trained in half precision: beside each parameter a float32 copy of it, and
// float32 means of its gradients and of their squares: 12 bytes a parameter.
class MasterAdamW : public torch::optim::Optimizer {
 public:
  explicit MasterAdamW(const std::vector<at::Tensor>& parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)}, std::make_unique<NoOptions>()) {
    const at::NoGradGuard no_grad;
    const cluster::MemoryScope scope(cluster::MemoryKind::kOptimizer, "construction");
    for (const at::Tensor& parameter : parameters) {
      at::Tensor master = parameter.detach().to(at::kFloat);
      states_.push_back({parameter, master, at::zeros_like(master), at::zeros_like(master)});
    }
  }

  at::Tensor step(LossClosure) override {
    const at::NoGradGuard no_grad;
    const cluster::MemoryScope scope(cluster::MemoryKind::kOptimizer, "update");
    ++steps_;
    for (State& state : states_) {
      const at::Tensor gradient = state.parameter.grad().to(at::kFloat);
      state.mean.lerp_(gradient, 1 - kBeta1);
      state.square.mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
      const double rate = kRate / (1 - std::pow(kBeta1, steps_));
      const at::Tensor root =
          state.square.sqrt().div_(std::sqrt(1 - std::pow(kBeta2, steps_))).add_(kEpsilon);
      state.master.mul_(1 - kRate * kDecay).addcdiv_(state.mean, root, -rate);
      state.parameter.copy_(state.master);
    }
    return {};
  }

  void save(torch::serialize::OutputArchive&) const override { TORCH_CHECK(false, "not saved"); }
  void load(torch::serialize::InputArchive&) override { TORCH_CHECK(false, "not saved"); }

 private:
  struct State {
    at::Tensor parameter;  // the caller's
    at::Tensor master, mean, square;
  };
  std::vector<State> states_;
  int steps_ = 0;
};

struct MemorySettings : BenchmarkOptions {
  std::vector<std::int64_t> millions = {7'500, 128'000, 1'000'000};  // of parameters
  std::vector<std::int64_t> gpus = {1, 4, 16, 64, 256, 1024};
  std::int64_t blocks = 37, tokens = 0;
};

struct Bytes {
  cluster::MemoryUse held;  // between steps
  cluster::MemoryUse most;  // within a step
};

std::vector<cluster::TimedLayer> layers_of(const MemorySettings& settings,
                                           std::int64_t parameters) {
  const double d_model = std::sqrt(static_cast<double>(parameters) / (kSquares * settings.blocks));
  const double kept = 2 * d_model * kKept * settings.blocks * settings.tokens / kLayers;
  std::vector<cluster::TimedLayer> layers;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    layers.push_back({.parameters = {cluster::make_parameter({parameters / kLayers}, at::kHalf)},
                      .name = "layers." + std::to_string(i),
                      .activation_bytes = std::llround(kept)});
  }
  return layers;
}

Bytes bytes_of(const MemorySettings& settings, const std::string& variant, std::int64_t parameters,
               std::int64_t gpus) {
  const cluster::MetaMemory memory;
  cluster::Cluster cluster(
      {.world_size = gpus,
       .device = {.name = "any", .flops_per_second = 1, .bytes_per_second = 1e12}});
  cluster::TimedModel model(cluster, layers_of(settings, parameters));
  Bytes bytes;
  const VariantOptions options = {.optimizer = [](std::vector<at::Tensor> trained) {
    return std::make_unique<MasterAdamW>(trained);
  }};
  bytes.most =
      simulate_step(variant, cluster, model, options, [&] { bytes.held = memory.live(); }).most;
  return bytes;
}

void add_bytes(std::vector<Series>& series, const Parameters& labels, const std::string& quantity,
               std::int64_t bytes) {
  series.push_back({.labels = joined({{"quantity", quantity}}, labels),
                    .unit = "bytes",
                    .values = {static_cast<double>(bytes)}});
}

Result memory_of_all(const MemorySettings& settings) {
  Result result = {.run = to_cluster_run(settings, kMemoryProgram, settings.gpus.back()),
                   .parameters = {{"dtype", "float16"},
                                  {"optimizer", "AdamW"},
                                  {"blocks", settings.blocks},
                                  {"tokens", settings.tokens}}};
  for (const std::string& variant : variants_on_cluster(kMeasured, settings.implementation)) {
    for (const std::int64_t millions : settings.millions) {
      const std::int64_t parameters = millions * 1'000'000;
      for (const std::int64_t gpus : settings.gpus) {
        const auto [held, most] = bytes_of(settings, variant, parameters, gpus);
        const Parameters labels = {
            {"stage", stage_of(variant)}, {"parameters", parameters}, {"world_size", gpus}};
        add_bytes(result.series, labels, "held", held.total());
        add_bytes(result.series, labels, "most", most.total());
        std::printf(
            "%-14s %8.1f billion parameters on %4lld GPUs: %9.2f GB held, %9.2f GB at most (%s:",
            variant.c_str(), 1e-3 * static_cast<double>(millions), static_cast<long long>(gpus),
            1e-9 * held.total(), 1e-9 * most.total(), most.moment);
        for (std::size_t kind = 0; kind < cluster::kMemoryKinds.size(); ++kind) {
          const std::string name = cluster::kMemoryKinds[kind];
          add_bytes(result.series, labels, name + " held", held.bytes[kind]);
          add_bytes(result.series, labels, name + " at most in " + most.moment, most.bytes[kind]);
          std::printf(" %s %.2f", name.c_str(), 1e-9 * most.bytes[kind]);
        }
        std::printf(")\n");
      }
    }
  }
  return result;
}

std::function<void()> add_memory(CLI::App& line, int argc, char** argv) {
  const auto settings = std::make_shared<MemorySettings>();
  add_study_flags(line, *settings, argc, argv);
  add_number(line, "--millions", settings->millions, "Of parameters", 1, 1 << 30);
  add_number(line, "--tokens", settings->tokens, "Of a GPU's batch, whose activations are counted",
             0, 1 << 30);
  add_number(line, "--blocks", settings->blocks, "Layers that such a transformer has", 1, 1000);
  add_number(line, "--gpus", settings->gpus, "How many in total");
  return [settings] { save_result(*settings, memory_of_all(*settings)); };
}

const bool kMemoryRegistered = register_study(
    {kMemoryProgram, "What a GPU holds of a large model, over the number of GPUs", add_memory});

}  // namespace
