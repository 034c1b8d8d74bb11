#include <ATen/ATen.h>

#include "ddp/launching/launch.h"
#include "ddp/timeline/timeline.h"
#include "experiments/timeline/timeline.h"
#include "measuring/variants.h"

// The network is Gloo. Every rank draws what it does as it does it.

namespace ddp {
namespace {

// A step as one rank observed it.
struct DrawnStep {
  double seconds = 0;
  std::vector<Span> spans;
};

class RealClock {
 public:
  RealClock(const TimelineSettings& settings, const RankContext& context)
      : device_context_(make_device_context(settings, context)),
        one_machine_(placement_of(context).one_machine),
        variants_(usable_variants(settings.variants, settings.implementation, device_context_)) {
    TrainerOptions options = settings.trainer;
    options.timeline = device_context_.timeline;
    for (const std::string& variant : variants_) {
      auto model =
          make_layered_model({.seed = settings.seed, .timeline = device_context_.timeline});
      options.units = model->units();
      trainers_.emplace_back(variant, std::move(model), device_context_.group, options);
    }
  }

  const DeviceContext& device_context() const { return device_context_; }

  MeasuredSteps measure(const TimelineSettings& settings) {
    const LabelledBatch batch = make_batch(settings.workload, settings.seed, device_context_);
    const auto [unused_batch, unused_image, steps, warmup] = settings.workload.size;
    const auto variants = static_cast<std::int64_t>(trainers_.size());
    at::Tensor seconds = at::empty({variants, steps}, at::kDouble);
    drawn_.resize(variants);
    for (int repetition = -warmup; repetition < steps; ++repetition) {
      for (std::int64_t variant = 0; variant < variants; ++variant) {
        DrawnStep step = draw_step(trainers_[variant], batch);
        if (repetition >= 0) {
          seconds[variant][repetition] = step.seconds;
          drawn_[variant].push_back(std::move(step));
        }
      }
    }
    all_reduce(seconds, device_context_.group, ReduceOp::kMax);
    return {.variants = variants_, .seconds = seconds};
  }

  // Of this rank, in the median step of each variant.
  std::vector<Span> median_spans(const MeasuredSteps& measured) const {
    std::vector<Span> all;
    const at::Tensor median = median_steps(measured);
    for (std::size_t variant = 0; variant < drawn_.size(); ++variant) {
      const auto step = median[static_cast<std::int64_t>(variant)].item<std::int64_t>();
      const std::vector<Span>& spans = drawn_[variant][step].spans;
      all.insert(all.end(), spans.begin(), spans.end());
    }
    return all;
  }

 private:
  DrawnStep draw_step(Trainer& trainer, const LabelledBatch& batch) const {
    Timeline& timeline = *device_context_.timeline;
    const std::int64_t begin = agree_on_origin(device_context_.group, one_machine_);
    timeline.take_spans();  // discards earlier spans
    timeline.set_origin(begin);
    trainer.backward(trainer.forward(batch));
    trainer.finish();
    const std::int64_t end = steady_ns();
    timeline.settle();
    timeline.add(SpanKind::kInstant, kStepEnd, end, end);
    DrawnStep step = {.seconds = in_seconds(end - begin), .spans = timeline.take_spans()};
    trainer.update();
    return step;
  }

  const DeviceContext device_context_;
  const bool one_machine_;
  const std::vector<std::string> variants_;
  std::vector<Trainer> trainers_;
  std::vector<std::vector<DrawnStep>> drawn_;  // by variant
};

}  // namespace

int run_by_real_clock(const TimelineSettings& settings) {
  return run_benchmark(settings, [&](RankContext& context) {
    RealClock clock(settings, context);
    const MeasuredSteps measured = clock.measure(settings);
    if (context.rank == 0) {
      save_steps(settings, to_run(settings, kTimelineProgram, clock.device_context().group),
                 measured);
    }
    save_trace(settings, context, clock.median_spans(measured));
  });
}

}  // namespace ddp
