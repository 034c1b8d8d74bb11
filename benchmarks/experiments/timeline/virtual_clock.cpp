#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>

#include "ddp/timeline/timeline.h"
#include "experiments/timeline/timeline.h"
#include "measuring/variants.h"
#include "measuring/virtual_run.h"

// The network is simulated. Everything follows from what the ranks did, in which order: no rank looks
// at a clock.

namespace ddp {
namespace {

LayerCosts costs_of_rank(const TimelineSettings& settings, int rank) {
  LayerCosts costs = settings.costs;
  for (auto* of_layers : {&costs.forward_us, &costs.backward_us}) {
    for (double& microseconds : *of_layers) {
      microseconds *= 1 + settings.slower * rank;
    }
  }
  return costs;
}

void run_step(Client& client, Place place, Trainer& trainer, const LabelledBatch& batch) {
  const auto go_to = [&](Phase phase) {
    place.phase = phase;
    client.go_to(place);
  };
  go_to(Phase::kForward);
  const at::Tensor loss = trainer.forward(batch);
  go_to(Phase::kBackward);
  trainer.backward(loss);
  go_to(Phase::kFinish);
  trainer.finish();
  go_to(Phase::kSetup);
  trainer.update();
}

// Begins the fact that there is a variant.
const std::string kVariant = "variant: ";

// Steps are numbered as they come, those of the warm-up too; a variant is a model of the evidence,
// and a fact with its name.
void run_rank(const TimelineSettings& settings, Client& client) {
  const DeviceContext context = virtual_context(client);
  const std::vector<std::string> variants =
      usable_variants(settings.variants, settings.implementation, context);
  const ComputeListener compute = [&client](std::int64_t ns, const std::string& name) {
    client.compute(ns, name);
  };
  std::vector<Trainer> trainers;
  for (const std::string& variant : variants) {
    client.fact(kVariant + variant, static_cast<std::int64_t>(trainers.size()));
    auto model = make_layered_model({.seed = settings.seed,
                                     .compute = compute,
                                     .costs = costs_of_rank(settings, client.rank())});
    TrainerOptions options = settings.trainer;
    options.units = model->units();
    trainers.emplace_back(variant, std::move(model), context.group, options);
    client.name(trainers.back().parameters());
  }
  const LabelledBatch batch = make_batch(settings.workload, settings.seed, context);
  Place place{.step = -1};
  for (int i = 0; i < settings.workload.size.warmup + settings.workload.size.steps; ++i) {
    for (std::size_t variant = 0; variant < variants.size(); ++variant) {
      ++place.step;
      place.model = static_cast<int>(variant);
      run_step(client, place, trainers[variant], batch);
    }
  }
}

class VirtualSteps {
 public:
  VirtualSteps(const TimelineSettings& settings, const Evidence& evidence)
      : settings_(settings),
        ranks_(evidence.world.ranks),
        time_(evidence, settings.network, simulated_cost) {
    for (const Seen& seen : evidence.of[0]) {
      const std::string_view text = seen.text;
      if (seen.kind == EventKind::kFact && text.starts_with(kVariant)) {
        measured_.variants.emplace_back(text.substr(kVariant.size()));
      }
    }
    const auto variants = static_cast<std::int64_t>(measured_.variants.size());
    measured_.seconds = at::empty({variants, settings.workload.size.steps}, at::kDouble);
    for (std::int64_t variant = 0; variant < variants; ++variant) {
      for (std::int64_t step = 0; step < settings.workload.size.steps; ++step) {
        measured_.seconds[variant][step] = in_seconds(time_.step_ns(number_of(variant, step)));
      }
    }
  }

  const MeasuredSteps& measured() const { return measured_; }

  // The median step of each variant.
  std::vector<RankSpans> drawing() const {
    const at::Tensor median = median_steps(measured_);
    std::vector<RankSpans> all;
    for (int rank = 0; rank < ranks_; ++rank) {
      all.push_back({.rank = rank, .spans = {}});
      for (std::size_t variant = 0; variant < measured_.variants.size(); ++variant) {
        const auto index = static_cast<std::int64_t>(variant);
        draw(all.back(), measured_.variants[variant],
             number_of(index, median[index].item<std::int64_t>()));
      }
    }
    return all;
  }

 private:
  int number_of(std::int64_t variant, std::int64_t step) const {
    const auto variants = static_cast<std::int64_t>(measured_.variants.size());
    return static_cast<int>((settings_.workload.size.warmup + step) * variants + variant);
  }

  void draw(RankSpans& drawing, const std::string& variant, int number) const {
    const VirtualTime::Step& step = time_.step(number);
    std::int64_t last = step.begin;
    for (Span span : time_.spans(drawing.rank)) {
      if (span.begin_ns < step.begin || span.end_ns > step.end) {
        continue;
      }
      last = std::max(last, span.end_ns);
      span.group = variant;
      for (auto time : {&Span::begin_ns, &Span::end_ns, &Span::launched_ns}) {
        span.*time -= step.begin;
      }
      drawing.spans.push_back(std::move(span));
    }
    drawing.spans.push_back({.kind = SpanKind::kInstant,
                             .name = kStepEnd,
                             .group = variant,
                             .begin_ns = last - step.begin,
                             .end_ns = last - step.begin});
  }

  const TimelineSettings& settings_;
  const int ranks_;
  const VirtualTime time_;
  MeasuredSteps measured_;
};

}  // namespace

int run_by_virtual_clock(const TimelineSettings& settings) {
  return run_in_virtual_time(
      settings, [&](Client& client) { run_rank(settings, client); },
      [&](const Evidence& evidence) {
        const VirtualSteps steps(settings, evidence);
        save_steps(settings,
                   to_run(settings, kTimelineProgram, kSimulatedNetwork, settings.device,
                          settings.world_size),
                   steps.measured());
        write_chrome_trace(steps.drawing(), settings.trace);
        std::printf("wrote %s\n", settings.trace.c_str());
      });
}

}  // namespace ddp
