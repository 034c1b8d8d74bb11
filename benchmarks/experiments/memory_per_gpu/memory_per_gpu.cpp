// What a GPU holds of a large model that is trained in half precision with AdamW, over the number of
// GPUs: with stage 03, whose ranks hold everything, with stage 06, whose ranks hold an N-th of
// gradients and optimizer state, and with stage 07, whose ranks hold an N-th of parameters, too. The sizes are those of ZeRO's table 1 (Rajbhandari et al., "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", SC20).
//
// The code really runs, in one process, on tensors that have shapes and no memory; what they would
// take is counted.
#include <ATen/ATen.h>

#include <cstdio>
#include <map>

#include "03_bucketed_ddp/bucketed_ddp.h"
#include "06_sharded_optimizer/sharded_optimizer.h"
#include "07_fully_sharded/fully_sharded.h"
#include "ddp/cluster/meta_memory.h"
#include "ddp/cluster/timed_model.h"
#include "ddp/ranks/stage_library.h"
#include "experiments/memory_per_gpu/master_adamw.h"
#include "harness/command_line.h"
#include "harness/presets.h"
#include "harness/published_cluster.h"
#include "harness/variants.h"

namespace {

using namespace ddp;

constexpr const char* kProgram = "memory_per_gpu";
const std::string kStages[] = {"03_bucketed_ddp", "06_sharded_optimizer", "07_fully_sharded"};
constexpr std::int64_t kLayers = 400;  // of one parameter each; all sizes are multiples

struct Settings : BenchmarkOptions {
  std::vector<std::int64_t> millions = {7'500, 128'000, 1'000'000};  // of parameters
  std::vector<std::int64_t> gpus = {1, 4, 16, 64, 256, 1024};
};

struct Bytes {
  std::int64_t held = 0;  // between steps
  std::int64_t most = 0;  // within a step
};

// One way to train: made on the cluster, and called after each backward.
using Trained = std::function<void()>;

Trained plain(const std::vector<at::Tensor>& parameters, const ProcessGroupPtr& group) {
  const std::shared_ptr<GradientSynchronizer> synchronizer =
      make_bucketed_ddp(parameters, {}, group);
  const auto optimizer = std::make_shared<MasterAdamW>(parameters);
  return [=] {
    synchronizer->finish();
    optimizer->step();
  };
}

Trained sharded(const std::vector<at::Tensor>& parameters, const ProcessGroupPtr& group) {
  const std::shared_ptr<ShardedOptimizer> optimizer =
      make_sharded_optimizer(parameters, {}, group, [](std::vector<at::Tensor> shard) {
        return std::make_unique<MasterAdamW>(std::move(shard));
      });
  return [=] { optimizer->step(); };
}

cluster::ClusterOptions device_of(std::int64_t gpus) {
  return {.world_size = gpus,
          .device = {.name = "any", .flops_per_second = 1, .bytes_per_second = 1e12}};
}

// A step of a model whose layers are units; gradients stay until the next one.
Trained fully_sharded(std::vector<at::Tensor> parameters, const ProcessGroupPtr& group) {
  std::vector<Unit> units;
  for (at::Tensor& parameter : parameters) {
    units.push_back(
        {{std::move(parameter)}, [](const at::Tensor& x, const std::vector<at::Tensor>& layer) {
           return x + layer[0].sum();
         }});
  }
  const std::shared_ptr<FullySharded> model = make_fully_sharded(std::move(units), group);
  const auto optimizer = std::make_shared<MasterAdamW>(model->shards());
  return [=] {
    optimizer->zero_grad();
    at::Tensor x = at::zeros({}, at::device(at::kMeta).dtype(at::kHalf));
    for (std::size_t i = 0; i < model->shards().size(); ++i) {
      x = model->forward(i, x);
    }
    x.backward();
    model->finish();
    optimizer->step();
  };
}

Bytes measure_units(std::int64_t parameters, std::int64_t gpus) {
  cluster::MetaMemory memory;
  cluster::Cluster cluster(device_of(gpus));
  Trained train;
  cluster.run([&] {
    std::vector<at::Tensor> layers;
    for (std::int64_t i = 0; i < kLayers; ++i) {
      layers.push_back(cluster::make_parameter({parameters / kLayers}, at::kHalf));
    }
    train = fully_sharded(std::move(layers), cluster.group());
    train();
    memory.reset_peak();
    train();
  });
  return {memory.live_bytes(), memory.peak_bytes()};
}

Bytes measure(const std::string& stage, std::int64_t parameters, std::int64_t gpus) {
  if (stage == kStages[2]) {
    return measure_units(parameters, gpus);
  }
  cluster::MetaMemory memory;
  cluster::Cluster cluster(device_of(gpus));
  std::vector<cluster::TimedLayer> layers;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    layers.push_back({.parameters = {cluster::make_parameter({parameters / kLayers}, at::kHalf)}});
  }
  cluster::TimedModel model(cluster, layers);
  Trained train;
  cluster.run([&] {
    train = (stage == kStages[0] ? plain : sharded)(model.parameters(), cluster.group());
  });
  const cluster::StepParts parts = {.finish = train};
  model.step(parts);
  memory.reset_peak();
  model.step(parts);
  return {memory.live_bytes(), memory.peak_bytes()};
}

std::vector<std::string> usable(const std::string& implementation) {
  std::vector<std::string> stages;
  for (const std::string& stage : kStages) {
    try {
      load_stage_library(stage_library(implementation, stage));
      measure(stage, kLayers, 2);
      stages.push_back(stage);
    } catch (const c10::Error& error) {
      std::fprintf(stderr, "%s is left out: %s\n", stage.c_str(), error.what_without_backtrace());
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!stages.empty(), "none of the stages can be used");
  return stages;
}

Result run(const Settings& settings) {
  Result result = {.run = to_cluster_run(settings, kProgram, settings.gpus.back()),
                   .parameters = {{"dtype", "float16"}, {"optimizer", "AdamW"}}};
  for (const std::string& stage : usable(settings.implementation)) {
    for (const std::int64_t millions : settings.millions) {
      const std::int64_t parameters = millions * 1'000'000;
      for (const std::int64_t gpus : settings.gpus) {
        const Bytes bytes = measure(stage, parameters, gpus);
        for (const auto& [quantity, value] :
             {std::pair{"held", bytes.held}, std::pair{"most", bytes.most}}) {
          result.series.push_back({.labels = {{"quantity", quantity},
                                              {"stage", stage},
                                              {"parameters", parameters},
                                              {"world_size", gpus}},
                                   .unit = "bytes",
                                   .values = {static_cast<double>(value)}});
        }
        std::printf(
            "%-22s %8.1f billion parameters on %4lld GPUs: %9.2f GB held, %9.2f GB at most\n",
            stage.c_str(), 1e-3 * static_cast<double>(millions), static_cast<long long>(gpus),
            1e-9 * bytes.held, 1e-9 * bytes.most);
      }
    }
  }
  return result;
}

void add_flags(CLI::App& line, Settings& settings) {
  for (const char* flag :
       {"--device", "--world-size", "--rate-gbit", "--latency-us", "--seed", "--trace"}) {
    line.remove_option(line.get_option(flag));  // nothing is measured
  }
  line.add_option("--millions", settings.millions, "Of parameters")->check(CLI::Range(1, 1 << 30));
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
