#include "experiments/bucketed_ddp/published.h"

#include <array>

#include "experiments/bucketed_ddp/timed_iteration.h"
#include "experiments/bucketed_ddp/training_lines.h"
#include "harness/cluster_step.h"
#include "models/profiles/hardware.h"
#include "models/profiles/transformer_profile.h"

namespace ddp {
namespace {

constexpr std::int64_t kGpus = 2;
constexpr int kAdamWStates = 2;

// What the published program spends besides the step, in seconds.
struct Rest {
  double iteration = 0;  // whatever is the same in every cell
  double finish = 0;     // in finish(), besides waiting: its averages are copied back
};

struct Setup {
  PublishedHardware hardware;
  Rest rest;
  std::int64_t gpus;
};

// The GPUs are not named. An A100 with TF32 has the fitted rate at half of its peak. A layer and an
// all-reduce cost the host the same, which a ring of two ranks has as two latencies.
Setup setup_of(const ClusterFlags& flags) {
  const Calibration fitted = fitted_for(flags, kTrainingProgram);
  const double efficiency = fitted.constant("efficiency");
  const auto overhead_ns = static_cast<std::int64_t>(1e9 * fitted.constant("overhead_s"));
  Setup setup = {
      .hardware = {.gpu = known_gpu("A100"),
                   .topology = {.gpus_per_node = 1 << 20,
                                .inside = {.alpha_ns = overhead_ns / 2,
                                           .beta_ns_per_byte =
                                               1e9 / fitted.constant("link_bytes_per_second")},
                                .algorithm = cluster::AllReduce::kRing},
                   .slowdown_beside_communication = fitted.constant("slowdown"),
                   .pace = {.forward_efficiency = efficiency,
                            .backward_efficiency = efficiency,
                            .least_ns = overhead_ns}},
      .rest = {.iteration = fitted.constant("iteration_s"), .finish = fitted.constant("finish_s")},
      .gpus = single_world(flags, kGpus)};
  apply(flags, setup.hardware);
  return setup;
}

// Seconds of kIterationParts.
std::array<double, kIterationParts.size()> times_of(const Way& way, const ProfiledModel& model,
                                                    const Setup& setup) {
  const cluster::StepTimes times =
      simulate_step(way.variant, model, setup.hardware, setup.gpus, way.options);
  const Work update = optimizer_work(model.profile(), kAdamWStates);
  const std::int64_t update_ns =
      cluster::operator_ns(setup.hardware.gpu, 0, static_cast<double>(update.bytes));
  const double finish = stage_of(way.variant).empty() ? 0 : setup.rest.finish;
  const auto seconds = [](std::int64_t ns) { return 1e-9 * static_cast<double>(ns); };
  const std::int64_t late = times.total_ns - times.forward_ns - times.backward_ns;
  // The Reducer waits inside backward, and what comes after it has nothing to wait for.
  const bool waits_in_backward = way.variant == kReducerVariant;
  return {seconds(times.total_ns + update_ns) + setup.rest.iteration + finish,
          seconds(times.backward_ns + (waits_in_backward ? late : 0)),
          waits_in_backward ? 0 : seconds(late) + finish};
}

}  // namespace

Result train_at_published_scale(const TrainingSettings& settings) {
  const Setup setup = setup_of(settings.cluster);
  const TransformerShape shape = transformer_shape(settings.model);
  const auto variants = variants_on_cluster(kTrainingVariants, settings.implementation);
  Result result = {.run = to_cluster_run(settings, kTrainingProgram, setup.gpus),
                   .parameters = parameters_of(settings),
                   .series = {}};
  const Parameters hardware = describe(setup.hardware);
  result.parameters.insert(result.parameters.end(), hardware.begin(), hardware.end());
  for (const std::int64_t batch : settings.batch_sizes) {
    for (const std::int64_t length : settings.sequence_lengths) {
      const ProfiledModel model(transformer_profile(settings.model, shape, {batch, length}));
      for (const Way& way : ways_of(settings, model, variants)) {
        const auto times = times_of(way, model, setup);
        for (std::size_t part = 0; part < kIterationParts.size(); ++part) {
          Parameters labels = {{kBatchLabel, batch}, {kLengthLabel, length}};
          labels.insert(labels.end(), way.labels.begin(), way.labels.end());
          labels.insert(labels.end(), {{kPartLabel, kIterationParts[part]}, {"rank", 0}});
          result.series.push_back({.labels = labels, .unit = "s", .values = {times[part]}});
        }
      }
    }
  }
  return result;
}

}  // namespace ddp
