// Weak scaling with AdamW on the simulated cluster, from naive to fully sharded: how long a step of XL and
// of a model of 7.5 billion parameters takes on 1 to 4,096 GPUs, each with a batch of its own, and what a
// GPU holds within it. And what stage 07's prefetch saves, over the speed of the link between machines.
//
// The code of each variant really runs, in this process; time is virtual, the same in every run.
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "ddp/cluster/meta_memory.h"
#include "experiments/cluster/cluster.h"
#include "measuring/command_line.h"
#include "models/profiles/hardware.h"
#include "models/profiles/model_profile.h"

namespace {

using namespace ddp;

constexpr const char* kShardedProgram = "sharded_scaling";
constexpr const char* kUnits = "fully sharded";
constexpr int kMostPrefetch = 2;
constexpr double kSlowest = 3.125, kFastest = 400;  // links, in 10^9 bytes a second

struct ShardedSettings : ScalingSettings {
  std::vector<std::string> variants = {kComputeOnly, "naive",   "flat", "overlapped",
                                       "bucketed",   "sharded", kUnits};
  std::int64_t link_gpus = 64;
  bool checkpoints = false;

  std::vector<std::pair<std::string, TransformerShape>> models() const {
    if (!cluster.shape.empty()) {
      return {{"own", shape_of(cluster, "")}};
    }
    return {{"xl", transformer_shape("xl")},
            {"7.5b", {.d_model = 4096, .d_ff = 11264, .layers = 36, .heads = 32}}};
  }

  ModelProfile profile(const std::string& name, const TransformerShape& shape) const {
    ModelProfile profile = transformer_profile(name, shape, sequences);
    for (ProfiledLayer& layer : profile.layers) {
      if (checkpoints) {
        layer.backward += layer.forward;
        layer.kept = 0;
      }
    }
    return profile;
  }
};

class ShardedScaling {
 public:
  explicit ShardedScaling(const ShardedSettings& settings)
      : settings_(settings),
        variants_(variants_on_cluster(settings.variants, settings.implementation)) {}

  Result run() {
    for (const auto& [name, shape] : settings_.models()) {
      const ModelProfile profile = settings_.profile(name, shape);
      std::printf("%s, %.2f billion parameters: efficiency in %%, GB at most\n%-8s", name.c_str(),
                  1e-9 * static_cast<double>(profile.elements()), "GPUs");
      for (const std::string& variant : variants_) {
        std::printf("%20s", variant.c_str());
      }
      for (const std::int64_t gpus : settings_.cluster.gpus) {
        std::printf("\n%-8lld", static_cast<long long>(gpus));
        for (const std::string& variant : variants_) {
          add(profile, variant, gpus);
        }
      }
      std::printf("\n");
      if (settings_.cluster.shape.empty() && std::ranges::count(variants_, kUnits) > 0) {
        add_links(profile);
      }
    }
    return {.run = to_cluster_run(settings_, kShardedProgram, settings_.cluster.gpus.back()),
            .parameters = parameters(),
            .series = std::move(series_)};
  }

 private:
  void add(const ModelProfile& profile, const std::string& variant, std::int64_t gpus) {
    const bool trains = variant != kComputeOnly;
    const cluster::MetaMemory memory;
    const ProfiledModel model(profile);
    const cluster::StepTimes step =
        simulate_step(variant, model, settings_.hardware(), gpus,
                      {.optimizer = trains ? MakeOptimizer(counted_adamw) : MakeOptimizer()});
    const auto labels = [&](const char* quantity) -> Parameters {
      return {{"quantity", quantity},
              {"model", profile.name},
              {"variant", variant},
              {"world_size", gpus}};
    };
    const double seconds = in_seconds(step.total_ns);
    alone_ = trains ? alone_ : seconds;
    series_.push_back(exact_time(labels("step"), seconds));
    series_.push_back(exact_time(labels("forward"), in_seconds(step.forward_ns)));
    series_.push_back({.labels = labels("most"),
                       .unit = "bytes",
                       .values = {static_cast<double>(step.most.total())}});
    std::printf("%12.1f %7.1f", 100 * alone_ / seconds, 1e-9 * step.most.total());
  }

  // Of each link the step with each prefetch, and the longer one of what computes and what communicates.
  void add_links(const ModelProfile& profile) {
    const auto step = [&](const std::string& variant, const PublishedHardware& on, int prefetch) {
      return simulate_step(variant, ProfiledModel(profile), on, settings_.link_gpus,
                           {.prefetch = prefetch});
    };
    const std::int64_t alone_ns = step(kComputeOnly, settings_.hardware(), 0).total_ns;
    for (double speed = kSlowest; speed <= kFastest; speed *= std::sqrt(2)) {
      PublishedHardware hardware = settings_.hardware();
      hardware.topology.between.beta_ns_per_byte = 1 / speed / (settings_.half ? 2 : 1);
      const auto add = [&](const char* quantity, std::int64_t prefetch, std::int64_t ns) {
        series_.push_back(exact_time({{"quantity", quantity},
                                      {"model", profile.name},
                                      {"prefetch", prefetch},
                                      {"link_gb_per_s", speed}},
                                     in_seconds(ns)));
      };
      std::int64_t communication_ns = 0;
      for (int prefetch = 0; prefetch <= kMostPrefetch; ++prefetch) {
        const cluster::StepTimes times = step(kUnits, hardware, prefetch);
        add("step by link", prefetch, times.total_ns);
        communication_ns = times.communication_ns;
      }
      add("computing by link", 0, alone_ns);
      add("communication by link", 0, communication_ns);
    }
  }

  Parameters parameters() const {
    return joined(settings_.parameters(), {{"link_gpus", settings_.link_gpus}});
  }

  const ShardedSettings settings_;
  const std::vector<std::string> variants_;
  std::vector<Series> series_;
  double alone_ = 0;  // seconds that forward and backward take alone
};

std::function<void()> add_sharded(CLI::App& line, int argc, char** argv) {
  const auto settings = std::make_shared<ShardedSettings>();
  ddp::add_flags(line, *settings, argc, argv);
  line.get_option("--shape")->description("In place of both models: d_model,d_ff,layers,heads");
  line.add_flag("--half", settings->half, "Tensors have 2 bytes an element, not 4");
  line.add_flag("--checkpoints", settings->checkpoints,
                "Backward computes forward again, and no activations are kept, nor counted");
  line.add_option("--variants", settings->variants, "What trains")->capture_default_str();
  add_number(line, "--link-gpus", settings->link_gpus, "How many GPUs compare links");
  return [settings] { save_result(*settings, ShardedScaling(*settings).run()); };
}

const bool kShardedRegistered = register_study(
    {kShardedProgram, "A step with AdamW on 1 to 4,096 GPUs, from naive to fully sharded",
     add_sharded});

}  // namespace
