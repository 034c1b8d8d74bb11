#include <cstdio>
#include <map>

#include "experiments/compare_ddp/compare_ddp.h"
#include "harness/cluster_step.h"
#include "harness/workload.h"
#include "models/profiles/hardware.h"
#include "models/profiles/model_profile.h"

namespace ddp {
namespace {

constexpr const char* kProgram = "compare_ddp";
constexpr std::int64_t kGpus = 2;  // the published text does not say

struct PublishedCandidate {
  const char* label;
  const char* variant;
  std::int64_t cap_mib;  // for each M (2^20) of the buffer size
  const char* published_name;
};
constexpr PublishedCandidate kCandidates[] = {
    {"core", "Reducer", 1, "DDPOption.DDP_CPP_CORE"},
    {"async", "Python DDP", 4, "DDPOption.PYTHON_DDP_ASYNC_REDUCTION"},
    {"sync", "Python DDP sync", 4, "DDPOption.PYTHON_DDP_SYNC_REDUCTION"},
    {"core, equal bytes", "Reducer", 4, "core, equal bytes"},
    {"stage 03", "bucketed", 4, "stage 03"},
};

// Neither GPUs nor network are named: the constants are relative to a V100, on one link.
PublishedHardware hardware_of(const ClusterFlags& flags) {
  const Calibration fitted = fitted_for(flags, kProgram);
  PublishedHardware hardware = {
      .gpu = known_gpu("V100"),
      .topology = {.gpus_per_node = 1 << 20,
                   .inside = {.beta_ns_per_byte = 1e9 / fitted.constant("link_bytes_per_second")},
                   .algorithm = cluster::AllReduce::kRing},
      .pace = {.forward_efficiency = fitted.constant("forward_efficiency"),
               .backward_efficiency = fitted.constant("backward_efficiency")}};
  apply(flags, hardware);
  return hardware;
}

Parameters parameters_of(const ProfiledModel& model, const ComparisonAmount& amount,
                         const PublishedHardware& hardware) {
  const Parameters name = {{"model", model.profile().name}};
  const Parameters others = {{"batch_size", amount.batch},
                             {"image_size", amount.image},
                             {"iterations", 1},
                             {"discarded", 0},
                             {"rate_gbit", 0},
                             {"latency_us", 0}};
  const ModelSummary summary = summarize_model(model.named_parameters());
  return joined(joined(joined(name, describe(summary)), others), describe(hardware));
}

}  // namespace

Result compare_at_published_scale(const ComparisonSettings& settings) {
  const ComparisonAmount& amount = settings.amount;
  const PublishedHardware hardware = hardware_of(settings.cluster);
  const std::int64_t gpus = single_world(settings.cluster, kGpus);
  const ProfiledModel model(
      resnet_profile(kComparedModel, {.batch = amount.batch, .side = amount.image}));
  variants_on_cluster({"bucketed"}, settings.implementation);
  Result result = {.run = to_cluster_run(settings, kProgram, gpus),
                   .parameters = parameters_of(model, amount, hardware)};
  for (const int buffer_size : amount.buffer_sizes) {
    for (const PublishedCandidate& candidate : kCandidates) {
      const cluster::StepTimes times =
          simulate_step(candidate.variant, model, hardware, gpus,
                        {.cap_bytes = buffer_size * candidate.cap_mib << 20});
      const auto add = [&](const char* direction, std::int64_t ns) {
        result.series.push_back(exact_time(
            {{"buffer_size", buffer_size}, {"variant", candidate.label}, {"direction", direction}},
            in_seconds(ns)));
      };
      add("forward", times.forward_ns);
      add("backward", times.total_ns - times.forward_ns);
    }
  }
  return result;
}

void print_published_summaries(const Result& result) {
  constexpr std::size_t kOfSize = 2 * std::size(kCandidates);  // series
  for (std::size_t first = 0; first < result.series.size(); first += kOfSize) {
    const auto size = std::get<std::int64_t>(result.series[first].labels[0].second);
    std::printf("=== Summary for buffer_size: %lldM ===\n", static_cast<long long>(size));
    for (const std::size_t direction : {0, 1}) {
      std::printf("DDP: [%-37s%10s%10s\n", direction == 0 ? "forward]" : "backward]", "Mean",
                  "delta%");
      const double core = result.series[first + direction].values.front();
      for (std::size_t i = 0; i < std::size(kCandidates); ++i) {
        const double mean = result.series[first + 2 * i + direction].values.front();
        std::printf("%-43s%10.3f%10.4f\n", kCandidates[i].published_name, 1e3 * mean,
                    100 * (mean / core - 1));
      }
      std::printf("\n");
    }
  }
}

}  // namespace ddp
