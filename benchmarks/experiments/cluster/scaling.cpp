// Weak scaling on the simulated cluster: the step of a large model on 1 to 4,096 GPUs, each with a
// batch of its own, with every way of averaging gradients; and the best size of a bucket on each
// number of GPUs, beside the handout's
//
//     b* = sqrt(s · w · o)
//
//     s  the gradients' bytes
//     o  the cost of an all-reduce whatever its size
//     w  the bytes that an all-reduce moves per second
//
// The code of each variant really runs, in this process; time is virtual, the same in every run.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "experiments/cluster/cluster.h"
#include "measuring/command_line.h"
#include "models/profiles/hardware.h"
#include "models/profiles/model_profile.h"

namespace {

using namespace ddp;

constexpr const char* kProgram = "scaling";
constexpr const char* kBucketed = "bucketed";
const std::vector<std::string> kVariants = {"naive", "flat", "overlapped", kBucketed, "Reducer"};

// How many caps there are for each doubling of their size.
const std::map<std::string, int> kPresets = {{"quick", 2}, {"full", 8}, {"paper", 8}};
constexpr std::int64_t kSmallestCap = std::int64_t{1} << 20;
struct Settings : ScalingSettings {
  std::string model = "xl";
  std::int64_t cap_bytes = std::int64_t{25} << 20, bucket_mb = 0;
};

class Scaling {
 public:
  explicit Scaling(const Settings& settings)
      : settings_(settings),
        hardware_(settings.hardware()),
        model_(transformer_profile(settings.model, shape_of(settings.cluster, settings.model),
                                   settings.sequences)),
        gradient_bytes_(std::int64_t{sizeof(float)} * model_.profile().elements()),
        variants_(variants_on_cluster(kVariants, settings.implementation)) {}

  Result run() const {
    Result result = {.run = to_cluster_run(settings_, kProgram, settings_.cluster.gpus.back()),
                     .parameters = parameters(),
                     .series = {step(kComputeOnly, 1)}};
    for (const std::int64_t gpus : settings_.cluster.gpus) {
      for (const std::string& variant : variants_) {
        result.series.push_back(step(variant, gpus));
      }
      if (gpus > 1 && std::ranges::count(variants_, kBucketed) > 0) {
        add_caps(gpus, result.series);
      }
    }
    return result;
  }

 private:
  double seconds_of(const std::string& variant, std::int64_t gpus, std::int64_t cap_bytes) const {
    return in_seconds(
        simulate_step(variant, model_, hardware_, gpus, {.cap_bytes = cap_bytes}).total_ns);
  }

  Series step(const std::string& variant, std::int64_t gpus) const {
    return exact_time({{"quantity", "step"}, {"variant", variant}, {"world_size", gpus}},
                      seconds_of(variant, gpus, settings_.cap_bytes));
  }

  // Steps with buckets of each size up to one for all gradients, and the best size by the formula.
  void add_caps(std::int64_t gpus, std::vector<Series>& series) const {
    const double ratio = std::exp2(1.0 / kPresets.at(settings_.preset));
    for (double cap = kSmallestCap; cap < ratio * static_cast<double>(gradient_bytes_);
         cap *= ratio) {
      const auto bytes = static_cast<std::int64_t>(cap);
      series.push_back(
          exact_time({{"quantity", "step by cap"}, {"world_size", gpus}, {"cap_bytes", bytes}},
                     seconds_of(kBucketed, gpus, bytes)));
    }
    series.push_back({.labels = {{"quantity", "best cap by formula"}, {"world_size", gpus}},
                      .unit = "bytes",
                      .values = {best_cap(gpus)}});
  }

  double best_cap(std::int64_t gpus) const {
    const auto cost = [&](std::int64_t bytes) {
      return in_seconds(cluster::all_reduce_ns(hardware_.topology, bytes, gpus));
    };
    const auto all = static_cast<double>(gradient_bytes_);
    const double bandwidth = all / (cost(gradient_bytes_) - cost(0));
    return std::sqrt(all * bandwidth * cost(0));
  }

  Parameters parameters() const {
    return joined({{"model", settings_.model},
                   {"parameters", model_.profile().elements()},
                   {"gradient_bytes", gradient_bytes_},
                   {"cap_bytes", settings_.cap_bytes}},
                  settings_.parameters());
  }

  const Settings settings_;
  const PublishedHardware hardware_;
  const ProfiledModel model_;
  const std::int64_t gradient_bytes_;
  const std::vector<std::string> variants_;
};

// The step on one GPU that averages nothing, over the step.
void print_table(const Settings& settings, const Result& result) {
  const double alone = result.series.front().values.front();
  std::printf("Efficiency in %% (a step on one GPU without averaging takes %.1f ms)\n%-8s",
              1e3 * alone, "GPUs");
  for (const std::string& variant : kVariants) {
    std::printf("%12s", variant.c_str());
  }
  for (const std::int64_t gpus : settings.cluster.gpus) {
    std::printf("\n%-8lld", static_cast<long long>(gpus));
    for (const std::string& variant : kVariants) {
      const Parameters labels = {{"quantity", "step"}, {"variant", variant}, {"world_size", gpus}};
      const auto found = std::ranges::find(result.series, labels, &Series::labels);
      found == result.series.end() ? std::printf("%12s", "-")
                                   : std::printf("%12.1f", 100 * alone / found->values.front());
    }
  }
  std::printf("\n");
}

std::function<void()> add(CLI::App& line, int argc, char** argv) {
  const auto settings = std::make_shared<Settings>();
  ddp::add_flags(line, *settings, argc, argv);
  add_choice(line, "--model", settings->model, "What is trained", transformer_names());
  add_number(line, "--cap-bytes", settings->cap_bytes, "A bucket's: bucketed and Reducer", 1,
             1 << 30);
  add_number(line, "--bucket-mb", settings->bucket_mb, "The same in MB of 2^20 bytes", 0);
  return [settings] {
    if (settings->bucket_mb > 0) {
      settings->cap_bytes = settings->bucket_mb << 20;
    }
    const Result result = Scaling(*settings).run();
    save_result(*settings, result);
    print_table(*settings, result);
  };
}

const bool kRegistered = register_study(
    {kProgram, "A step on 1 to 4,096 GPUs, with each way of averaging gradients", add});

}  // namespace
