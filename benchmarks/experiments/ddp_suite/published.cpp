#include <algorithm>
#include <cmath>

#include "experiments/ddp_suite/suite.h"
#include "measuring/on_cluster.h"
#include "models/profiles/hardware.h"
#include "models/profiles/model_profile.h"

namespace ddp {
namespace {

constexpr const char* kGpu = "V100";
constexpr ImageBatch kPublishedBatch = {.batch = 32, .side = 224};
constexpr int kMomentumStates = 1;

double update_ns(const ModelProfile& profile, const cluster::Device& gpu) {
  const Work update = optimizer_work(profile, kMomentumStates);
  return static_cast<double>(cluster::operator_ns(gpu, 0, static_cast<double>(update.bytes)));
}

// At the published size, at full speed.
double step_ns(const std::string& name, const cluster::Device& gpu) {
  const ProfiledModel model(resnet_profile(name, kPublishedBatch));
  std::int64_t sum = 0;
  for (const cluster::TimedLayer& layer : model.timed_layers(gpu, {})) {
    sum += layer.forward_ns + layer.backward_ns;
  }
  return static_cast<double>(sum);
}

// One model's part of the suite.
class PublishedModel {
 public:
  PublishedModel(const SuiteSettings& settings, const std::string& name, const Calibration& fitted)
      : model_(resnet_profile(
            name, {.batch = settings.workload.size.batch, .side = settings.workload.size.image})) {
    // The round without DDP is given: what is predicted is what DDP adds.
    const cluster::Device published = known_gpu(kGpu);
    const double compute_ns = 1e9 * fitted.constant("compute_s." + name);
    const double efficiency =
        step_ns(name, published) / (compute_ns - update_ns(model_.profile(), published));
    hardware_ = {
        .gpu = published,
        .topology = {.gpus_per_node = 8,
                     .inside = {.beta_ns_per_byte = 1e9 / fitted.constant("link_bytes_per_second")},
                     .between = known_link("infiniband4x100"),
                     .algorithm = cluster::AllReduce::kNccl,
                     .nccl = {.generation = cluster::NcclMachine::kVolta, .nvlink = true},
                     .overhead_ns = std::llround(1e9 * fitted.constant("all_reduce_overhead_s"))},
        .slowdown_beside_communication = fitted.constant("slowdown"),
        .copy_bytes_per_second = fitted.constant("copy_bytes_per_second"),
        .pace = {.forward_efficiency = efficiency, .backward_efficiency = efficiency}};
    apply(settings.cluster, hardware_);
    if (!settings.cluster.gpu.empty()) {
      hardware_.slowdown_beside_communication = slowdown_by_nvlink(hardware_.gpu);
    }
  }

  const PublishedHardware& hardware() const { return hardware_; }

  Series without_ddp() const {
    return series("no ddp", 1, kComputeOnly, seconds(kComputeOnly, 1, {}));
  }

  Series with_ddp(std::int64_t gpus, const std::string& variant, std::int64_t megabytes) const {
    Series one = series(round_name(gpus), gpus, variant,
                        seconds(variant, gpus, {.cap_bytes = megabytes << 20}));
    one.labels.emplace_back("bucket_size", megabytes);
    return one;
  }

 private:
  double seconds(const std::string& variant, std::int64_t gpus,
                 const VariantOptions& options) const {
    const cluster::StepTimes times = simulate_step(variant, model_, hardware_, gpus, options);
    return 1e-9 *
           (static_cast<double>(times.total_ns) + update_ns(model_.profile(), hardware_.gpu));
  }

  Series series(const std::string& round, std::int64_t gpus, const std::string& variant,
                double value) const {
    return exact_time(
        {{"model", model_.profile().name}, {"round", round}, {"ranks", gpus}, {"variant", variant}},
        value);
  }

  // Such as "2M/8G": machines, and the GPUs of each.
  std::string round_name(std::int64_t gpus) const {
    const std::int64_t of_node = std::min(gpus, hardware_.topology.gpus_per_node);
    return std::to_string((gpus + of_node - 1) / of_node) + "M/" + std::to_string(of_node) + "G";
  }

  const ProfiledModel model_;
  PublishedHardware hardware_;
};

}  // namespace

Result run_suite_at_published_scale(const SuiteSettings& settings) {
  const Calibration fitted = fitted_for(settings.cluster, kSuiteProgram);
  const std::vector<std::int64_t> worlds = settings.cluster.gpus.empty()
                                               ? std::vector<std::int64_t>{1, 2, 4, 8, 16, 32, 64}
                                               : settings.cluster.gpus;
  variants_on_cluster(kSuiteVariants, settings.implementation);
  Result result = {.run = to_cluster_run(settings, kSuiteProgram, std::ranges::max(worlds)),
                   .parameters = joined({{"batch_size", settings.workload.size.batch},
                                         {"image_size", settings.workload.size.image},
                                         {"warmup", 0},
                                         {"rate_gbit", 0.0},
                                         {"latency_us", 0.0}},
                                        settings.sizes_as_parameters())};
  for (const SuiteModel& chosen : settings.models()) {
    const PublishedModel model(settings, chosen.name, fitted);
    if (result.series.empty()) {
      result.parameters = joined(result.parameters, describe(model.hardware()));
    }
    result.series.push_back(model.without_ddp());
    for (const std::int64_t gpus : worlds) {
      for (const std::int64_t megabytes : settings.bucket_sizes) {
        for (const std::string& variant : kSuiteVariants) {
          result.series.push_back(model.with_ddp(gpus, variant, megabytes));
        }
      }
    }
  }
  return result;
}

}  // namespace ddp
