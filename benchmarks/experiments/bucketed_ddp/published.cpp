#include <array>

#include "experiments/bucketed_ddp/bucketed_ddp.h"
#include "harness/cluster_step.h"
#include "models/profiles/hardware.h"
#include "models/profiles/model_profile.h"

namespace ddp {
namespace {

constexpr std::int64_t kGpus = 2;
// Kernels that wait for a GPU: about 1,000, NVIDIA Developer Forums, 68937.
constexpr std::int64_t kLaunchQueue = 1024;

struct Setup {
  PublishedHardware hardware;
  double update_elements;  // that the optimizer reads and writes, for each parameter
  std::int64_t gpus;
  // Averaging begins, by the published program's clock, when its host has launched backward, and in
  // the flat variant the copies behind it, too: about when the GPU has computed all gradients.
  bool measures_by_host;
};

// The published GPUs are not named. An A100 with TF32 and PCI Express has the author's other tables.
Setup setup_of(const ClusterFlags& flags) {
  const Calibration fitted = fitted_for(flags, kTrainingProgram);
  const auto ns = [&](const char* name) {
    return static_cast<std::int64_t>(1e9 * fitted.constant(name));
  };
  Setup setup = {
      .hardware = {.gpu = known_gpu("A100"),
                   .topology = {.gpus_per_node = 1 << 20,
                                .inside = {.beta_ns_per_byte =
                                               1e9 / fitted.constant("link_bytes_per_second")},
                                .algorithm = cluster::AllReduce::kNccl,
                                .nccl = {.generation = cluster::NcclMachine::kAmpere},
                                .overhead_ns = ns("all_reduce_overhead_s")},
                   .pace = {.forward_efficiency = fitted.constant("forward_efficiency"),
                            .backward_efficiency = fitted.constant("backward_efficiency"),
                            .memory_efficiency = fitted.constant("memory_efficiency"),
                            .kernel_ns = kKernelNs,
                            .host = {.forward_ns = ns("forward_host_s"),
                                     .backward_ns = ns("backward_host_s")}}},
      .update_elements = fitted.constant("update_elements"),
      .gpus = single_world(flags, kGpus),
      .measures_by_host = fitted.constant("measures_by_host") > 0};
  apply(flags, setup.hardware);
  PublishedHardware& hardware = setup.hardware;
  if (hardware.topology.nccl.nvlink) {
    hardware.slowdown_beside_communication = slowdown_by_nvlink(hardware.gpu);
  } else {
    hardware.kernel_ns_beside_communication = ns("kernel_s_beside_all_reduce");
    hardware.slowdown_beside_computing = fitted.constant("slowdown_of_all_reduce");
  }
  hardware.gpu.launch_ns = ns("launch_s");
  hardware.launch_queue = kLaunchQueue;
  hardware.copy_bytes_per_second = hardware.pace.memory_efficiency * hardware.gpu.bytes_per_second;
  return setup;
}

double update_s(const ProfiledModel& model, const Setup& setup) {
  const auto elements = static_cast<double>(model.profile().elements());
  return setup.update_elements * elements * sizeof(float) / setup.hardware.copy_bytes_per_second;
}

// Seconds of kIterationParts.
std::array<double, kIterationParts.size()> times_of(const Way& way, const ProfiledModel& model,
                                                    const Setup& setup) {
  const cluster::StepTimes times =
      simulate_step(way.variant, model, setup.hardware, setup.gpus, way.options);
  const double train = in_seconds(times.total_ns) + update_s(model, setup);
  const std::int64_t late = times.total_ns - times.forward_ns - times.backward_ns;
  // The Reducer waits inside backward, and what comes after it has nothing to wait for.
  if (way.variant == kReducerVariant) {
    return {train, in_seconds(times.backward_ns + late), 0};
  }
  const bool measures_by_host =
      setup.measures_by_host && way.variant != "flat" && way.variant != kComputeOnly;
  return {train, in_seconds(times.backward_ns),
          in_seconds(measures_by_host ? times.total_ns - times.host_backward_end_ns : late)};
}

}  // namespace

Result train_at_published_scale(const TrainingSettings& settings) {
  const Setup setup = setup_of(settings.cluster);
  const auto variants = variants_on_cluster(kTrainingVariants, settings.implementation);
  Result result = {.run = to_cluster_run(settings, kTrainingProgram, setup.gpus),
                   .parameters = joined(parameters_of(settings), describe(setup.hardware))};
  const ProfiledModel any(transformer_profile(settings.model, settings.shape(), {}));
  result.parameters.emplace_back("besides_s", update_s(any, setup));
  for (const std::int64_t batch : settings.batch_sizes) {
    for (const std::int64_t length : settings.sequence_lengths) {
      const ProfiledModel model(
          transformer_profile(settings.model, settings.shape(), {batch, length}));
      for (const Way& way : ways_of(settings, model, variants)) {
        const auto times = times_of(way, model, setup);
        for (std::size_t part = 0; part < kIterationParts.size(); ++part) {
          const Parameters labels =
              joined({{kBatchLabel, batch}, {kLengthLabel, length}}, way.labels);
          result.series.push_back(exact_time(
              joined(labels, {{kPartLabel, kIterationParts[part]}, {"rank", 0}}), times[part]));
        }
      }
    }
  }
  return result;
}

}  // namespace ddp
