#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <utility>

#include "ddp/meters/device_timer.h"
#include "experiments/compare_ddp/compare_ddp.h"
#include "harness/interleaved.h"
#include "harness/resumable_rows.h"
#include "harness/trainer.h"
#include "harness/variants.h"
#include "harness/workload.h"

namespace ddp {
namespace {

constexpr std::int64_t kParameters = 25'557'032;  // torchvision's, and so the published model's
constexpr std::int64_t kOutputs = 1000;
constexpr std::array kDirections = {"forward", "backward"};

// One of the compared synchronizers.
struct Candidate {
  const char* label;
  const char* variant;     // see all_variants()
  std::int64_t cap_bytes;  // per bucket, for each M (2^20) of the buffer size
};
// The published bucket_cap_mb is M, in MiB, while the other buffers hold M * 2^20 float32 elements.
constexpr std::int64_t kMib = 1 << 20;
constexpr Candidate kAllCandidates[] = {{"core", "Reducer", 1 * kMib},
                                        {"core, equal bytes", "Reducer", 4 * kMib},
                                        {"async", "bucketed", 4 * kMib},
                                        {"sync", "bucketed sync", 4 * kMib}};

at::Tensor mean_squared_error(const at::Tensor& scores, const at::Tensor& targets) {
  return at::mse_loss(scores, targets);
}

LabelledBatch make_batch_for(const ComparisonSettings& settings,
                             const DeviceContext& device_context) {
  const int batch = settings.amount.batch;
  LabelledBatch made = make_batch(
      {.model = kComparedModel, .size = {.batch = batch, .image = settings.amount.image}},
      settings.seed, device_context);
  if (settings.loss == "mse") {
    at::Generator generator =
        at::detail::createCPUGenerator(settings.seed + device_context.group->getRank());
    made.labels = at::rand({batch, kOutputs}, generator).to(device_context.device);
  }
  return made;
}

// Each variant keeps one model; its synchronizer is made anew for each buffer size.
class BufferComparison {
 public:
  BufferComparison(const ComparisonSettings& settings, const DeviceContext& device_context)
      : settings_(settings),
        device_context_(device_context),
        batch_(make_batch_for(settings, device_context)),
        timer_(make_device_timer(device_context.device)) {
    const std::vector<std::string> usable = usable_variants(
        {"Reducer", "bucketed", "bucketed sync"}, settings.implementation, device_context);
    for (const Candidate& candidate : kAllCandidates) {
      if (std::ranges::find(usable, candidate.variant) != usable.end()) {
        candidates_.push_back(candidate);
        models_.push_back(make_model(kComparedModel, settings.seed, device_context.device));
      }
    }
    summary_ = summarize_model(models_.front()->named_parameters());
    TORCH_CHECK(summary_.total == kParameters, kComparedModel, " has ", summary_.total,
                " parameters, and the published one has ", kParameters);
  }

  const ModelSummary& model() const { return summary_; }

  // Everything that must agree between a run and the one that it resumes.
  Result header() const {
    std::vector<std::string> labels;
    for (const Candidate& candidate : candidates_) {
      labels.emplace_back(candidate.label);
    }
    const ComparisonAmount& amount = settings_.amount;
    const Parameters model = {{"model", kComparedModel}};
    const Parameters others = {{"batch_size", amount.batch},
                               {"image_size", amount.image},
                               {"iterations", amount.iterations},
                               {"discarded", amount.discarded},
                               {"buffer_sizes", c10::Join(", ", amount.buffer_sizes)},
                               {"variants", c10::Join("; ", labels)},
                               {"first_bucket_bytes", VariantOptions().first_bucket_bytes},
                               {"loss", settings_.loss},
                               {"times_of", settings_.times_of},
                               {"broadcasts_buffers", std::int64_t{settings_.broadcasts_buffers}},
                               {"rate_gbit", settings_.rate_gbit},
                               {"latency_us", settings_.latency_us}};
    return {.run = to_run(settings_, "compare_ddp", device_context_.group),
            .parameters = joined(joined(model, describe(summary_)), others)};
  }

  // On rank 0 the seconds of each counted iteration. Buffers hold buffer_size * 2^20 elements. The
  // first call checks that all variants have core's gradients: models are equal only before training.
  std::vector<Series> measure(int buffer_size, Progress& progress) {
    std::vector<Trainer> trainers = make_trainers(buffer_size);
    if (!std::exchange(checked_, true)) {
      std::vector<std::string> names;
      for (const Candidate& candidate : candidates_) {
        names.emplace_back(candidate.variant);
      }
      check_gradients(names, trainers, /*peer=*/0, batch_);
    }
    const int discarded = settings_.amount.discarded;
    at::Tensor times = measure_interleaved(
        {.measured = settings_.amount.iterations - discarded, .warmup = discarded}, trainers.size(),
        [&](std::size_t turn) { return iterate(trainers[turn]); }, &progress);
    if (settings_.times_of == "slowest") {
      times = largest_of_ranks(times, device_context_);
    }
    std::vector<Series> series;
    for (std::size_t i = 0; i < trainers.size(); ++i) {
      for (std::size_t part = 0; part < kDirections.size(); ++part) {
        series.push_back(series_of(
            times, i, part, {{"variant", candidates_[i].label}, {"direction", kDirections[part]}}));
      }
    }
    return series;
  }

 private:
  // New synchronizers for the same models. They remove their hooks when they are destroyed.
  std::vector<Trainer> make_trainers(int buffer_size) const {
    std::vector<Trainer> trainers;
    trainers.reserve(candidates_.size());
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      TrainerOptions options;
      options.cap_bytes = buffer_size * candidates_[i].cap_bytes;
      options.broadcast_buffers = settings_.broadcasts_buffers;
      options.loss = settings_.loss == "mse" ? mean_squared_error : cross_entropy;
      options.timeline = device_context_.timeline;
      trainers.emplace_back(candidates_[i].variant, models_[i], device_context_.group, options);
    }
    return trainers;
  }

  // One iteration, begun together by all ranks. Seconds of kDirections. As published, the device
  // finishes forward before backward begins.
  std::vector<double> iterate(Trainer& trainer) {
    at::Tensor loss;
    const double forward =
        seconds_together(*timer_, device_context_.group, [&] { loss = trainer.forward(batch_); });
    timer_->start();
    trainer.backward(loss);
    trainer.finish();
    timer_->stop();
    const double backward = timer_->seconds();
    trainer.update();
    return {forward, backward};
  }

  const ComparisonSettings& settings_;
  const DeviceContext& device_context_;
  const LabelledBatch batch_;
  const std::unique_ptr<DeviceTimer> timer_;
  std::vector<Candidate> candidates_;
  std::vector<std::shared_ptr<Model>> models_;  // one for each candidate
  ModelSummary summary_;
  bool checked_ = false;
};

}  // namespace

Result compare_on_ranks(const ComparisonSettings& settings, const DeviceContext& device_context) {
  const ComparisonAmount& amount = settings.amount;
  BufferComparison comparison(settings, device_context);
  ResumableRows rows(settings, comparison.header(), device_context);
  const int rank = device_context.group->getRank();
  if (rank == 0) {
    print(kComparedModel, comparison.model());
  }
  Progress progress("compare_ddp, repetitions",
                    static_cast<int>(amount.buffer_sizes.size()) * amount.iterations, rank);
  for (const int buffer_size : amount.buffer_sizes) {
    const Parameters labels = {{"buffer_size", buffer_size}};
    if (!rows.has(labels)) {
      rows.add(labels, comparison.measure(buffer_size, progress));
    } else {
      progress.skip(amount.iterations);
    }
  }
  progress.clear_line();
  return rows.finish();
}

}  // namespace ddp
