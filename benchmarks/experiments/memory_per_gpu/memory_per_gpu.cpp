// What a GPU holds of a large model that is trained in half precision with AdamW, over the number of
// GPUs: with stage 03, whose ranks hold everything, with stage 06, whose ranks hold an N-th of
// gradients and optimizer state, and with stage 07, whose ranks hold an N-th of parameters, too. The
// sizes are those of ZeRO's table 1 (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training
// Trillion Parameter Models", SC20).
//
// The code really runs, in one process, on tensors that have shapes and no memory; what they would
// take is counted.
#include <cmath>
#include <cstdio>

#include "ddp/cluster/meta_memory.h"
#include "experiments/memory_per_gpu/master_adamw.h"
#include "harness/cluster_step.h"
#include "harness/command_line.h"
#include "harness/presets.h"
#include "harness/published_cluster.h"

namespace {

using namespace ddp;

constexpr const char* kProgram = "memory_per_gpu";
const std::vector<std::string> kVariants = {"bucketed", "sharded", "fully sharded"};
constexpr std::int64_t kLayers = 400;  // of one parameter each; all sizes are multiples

// Of a transformer's layer by d_model: parameters, for d_model squared, and elements that are kept for a
// token, as ZeRO estimates them (section 3.2: "about 12 × hidden dim × batch × seq length × transformer
// layers").
constexpr std::int64_t kSquares = 12, kKept = 12;

struct Settings : BenchmarkOptions {
  std::vector<std::int64_t> millions = {7'500, 128'000, 1'000'000};  // of parameters
  std::vector<std::int64_t> gpus = {1, 4, 16, 64, 256, 1024};
  std::int64_t blocks = 37, tokens = 0;
};

struct Bytes {
  cluster::MemoryUse held;  // between steps
  cluster::MemoryUse most;  // within a step
};

std::vector<cluster::TimedLayer> layers_of(const Settings& settings, std::int64_t parameters) {
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

Bytes measure(const Settings& settings, const std::string& variant, std::int64_t parameters,
              std::int64_t gpus) {
  const cluster::MetaMemory memory;
  cluster::Cluster cluster(
      {.world_size = gpus,
       .device = {.name = "any", .flops_per_second = 1, .bytes_per_second = 1e12}});
  cluster::TimedModel model(cluster, layers_of(settings, parameters));
  Bytes bytes;
  const VariantOptions options = {.optimizer = [](std::vector<at::Tensor> trained) {
    return std::make_unique<MasterAdamW>(std::move(trained));
  }};
  bytes.most =
      simulate_step(variant, cluster, model, options, [&] { bytes.held = memory.live(); }).most;
  return bytes;
}

void add(std::vector<Series>& series, Parameters labels, const std::string& quantity,
         std::int64_t bytes) {
  labels.insert(labels.begin(), {"quantity", quantity});
  series.push_back(
      {.labels = std::move(labels), .unit = "bytes", .values = {static_cast<double>(bytes)}});
}

Result run(const Settings& settings) {
  Result result = {.run = to_cluster_run(settings, kProgram, settings.gpus.back()),
                   .parameters = {{"dtype", "float16"},
                                  {"optimizer", "AdamW"},
                                  {"blocks", settings.blocks},
                                  {"tokens", settings.tokens}}};
  for (const std::string& variant : variants_on_cluster(kVariants, settings.implementation)) {
    for (const std::int64_t millions : settings.millions) {
      const std::int64_t parameters = millions * 1'000'000;
      for (const std::int64_t gpus : settings.gpus) {
        const auto [held, most] = measure(settings, variant, parameters, gpus);
        const Parameters labels = {
            {"stage", stage_of(variant)}, {"parameters", parameters}, {"world_size", gpus}};
        add(result.series, labels, "held", held.total());
        add(result.series, labels, "most", most.total());
        std::printf(
            "%-14s %8.1f billion parameters on %4lld GPUs: %9.2f GB held, %9.2f GB at most (%s:",
            variant.c_str(), 1e-3 * static_cast<double>(millions), static_cast<long long>(gpus),
            1e-9 * held.total(), 1e-9 * most.total(), most.moment);
        for (std::size_t kind = 0; kind < cluster::kMemoryKinds.size(); ++kind) {
          const std::string name = cluster::kMemoryKinds[kind];
          add(result.series, labels, name + " held", held.bytes[kind]);
          add(result.series, labels, name + " at most in " + most.moment, most.bytes[kind]);
          std::printf(" %s %.2f", name.c_str(), 1e-9 * most.bytes[kind]);
        }
        std::printf(")\n");
      }
    }
  }
  return result;
}

void add_flags(CLI::App& line, Settings& settings) {
  remove_measuring_flags(line);
  line.add_option("--millions", settings.millions, "Of parameters")->check(CLI::Range(1, 1 << 30));
  line.add_option("--tokens", settings.tokens, "Of a GPU's batch, whose activations are counted")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  line.add_option("--blocks", settings.blocks, "Layers that such a transformer has")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  line.add_option("--gpus", settings.gpus, "How many in total")->check(CLI::Range(1, 1 << 20));
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("What a GPU holds of a large model, over the number of GPUs");
  Settings settings;
  ddp::add_flags(line, settings, argc, argv);
  add_flags(line, settings);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  return run_on_cluster([&] { save_result(settings, run(settings)); });
}
