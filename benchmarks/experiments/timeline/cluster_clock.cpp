#include <ATen/ATen.h>

#include <cstdio>

#include "ddp/timeline/timeline.h"
#include "experiments/timeline/timeline.h"
#include "measuring/on_cluster.h"
#include "models/profiles/hardware.h"

// The network and the GPUs are simulated, in this process: a model of any size, whose ranks all do
// the same.

namespace ddp {
namespace {

// Part of the GPU's peak that computing reaches.
constexpr Pace kPace{.forward_efficiency = 0.5, .backward_efficiency = 0.5};

class ClusterClock {
 public:
  explicit ClusterClock(const TimelineSettings& settings)
      : settings_(settings),
        variants_(variants_on_cluster(settings.variants, settings.implementation)),
        cluster_({.world_size = settings.world_size,
                  .device = known_gpu(settings.gpu),
                  .topology = {.gpus_per_node = settings.world_size,
                               .inside = known_link(settings.link)}}),
        model_(model_on_cluster(settings)),
        timed_(cluster_, model_.timed_layers(cluster_.options().device, kPace),
               tensors_of(model_.named_parameters())) {}

  MeasuredSteps run() {
    const VariantOptions& options = settings_.trainer;
    MeasuredSteps measured = {
        .variants = variants_,
        .seconds = at::empty({static_cast<std::int64_t>(variants_.size()), 1}, at::kDouble)};
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      const cluster::StepTimes times = simulate_step(variants_[i], cluster_, timed_, options);
      measured.seconds[static_cast<std::int64_t>(i)] = in_seconds(times.total_ns);
      draw(variants_[i], times);
    }
    return measured;
  }

  std::vector<RankSpans> drawing() const {
    std::vector<RankSpans> all(settings_.world_size, {.rank = 0, .spans = spans_});
    for (int rank = 0; rank < settings_.world_size; ++rank) {
      all[rank].rank = rank;
    }
    return all;
  }

 private:
  void draw(const std::string& variant, const cluster::StepTimes& times) {
    std::int64_t now = 0;
    const auto part = [&](const char* name, std::int64_t ns) {
      spans_.push_back({.name = name, .group = variant, .begin_ns = now, .end_ns = now + ns});
      now += ns;
    };
    part("forward", times.forward_ns);
    part("backward", times.backward_ns);
    part("finish", times.finish_ns);
    for (Span span : cluster_.spans()) {
      span.group = variant;
      spans_.push_back(std::move(span));
    }
    spans_.push_back({.kind = SpanKind::kInstant,
                      .name = kStepEnd,
                      .group = variant,
                      .begin_ns = times.total_ns,
                      .end_ns = times.total_ns});
  }

  const TimelineSettings& settings_;
  const std::vector<std::string> variants_;
  cluster::Cluster cluster_;
  const ProfiledModel model_;
  cluster::TimedModel timed_;
  std::vector<Span> spans_;  // of every rank
};

}  // namespace

int run_by_cluster_clock(const TimelineSettings& settings) {
  return run_on_cluster([&] {
    ClusterClock clock(settings);
    const MeasuredSteps measured = clock.run();
    save_steps(settings, to_cluster_run(settings, kTimelineProgram, settings.world_size), measured);
    write_chrome_trace(clock.drawing(), settings.trace);
    std::printf("wrote %s\n", settings.trace.c_str());
  });
}

}  // namespace ddp
