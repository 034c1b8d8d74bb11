#include <ATen/ATen.h>
#include <torch/optim/adamw.h>

#include <algorithm>

#include "ddp/meters/device_timer.h"
#include "experiments/bucketed_ddp/bucketed_ddp.h"
#include "harness/resumable_rows.h"
#include "harness/trainer.h"
#include "models/transformer.h"

namespace ddp {
namespace {

class Measurement {
 public:
  Measurement(const TrainingSettings& settings, const DeviceContext& device_context,
              ResumableRows& rows)
      : settings_(settings),
        device_context_(device_context),
        rows_(rows),
        model_(new_model()),
        ways_(ways_of(settings, *model_,
                      usable_variants(kTrainingVariants, settings.implementation, device_context))),
        progress_("bucketed_ddp, repetitions",
                  static_cast<int>((settings.interleaved ? 1 : ways_.size()) *
                                   settings.batch_sizes.size() * settings.sequence_lengths.size()) *
                      settings.repetitions.all(),
                  device_context.group->getRank()) {}

  void run() {
    for (const std::int64_t batch : settings_.batch_sizes) {
      for (const std::int64_t length : settings_.sequence_lengths) {
        const Parameters labels = {{kBatchLabel, batch}, {kLengthLabel, length}};
        if (settings_.interleaved) {
          measure_row(labels, ways_, batch, length);
          continue;
        }
        // Each variant is a row of its own, with the row's labels.
        for (const Way& way : ways_) {
          measure_row(joined(labels, way.labels),
                      {{.variant = way.variant, .options = way.options, .labels = {}}}, batch,
                      length);
        }
      }
    }
  }

 private:
  std::shared_ptr<Model> new_model() const {
    return make_transformer(transformer_shape(settings_.model),
                            {.seed = settings_.seed, .device = device_context_.device});
  }

  void measure_row(const Parameters& labels, const std::vector<Way>& ways, std::int64_t batch,
                   std::int64_t length) {
    if (rows_.has(labels)) {
      progress_.skip(settings_.repetitions.all());
      return;
    }
    const LabelledBatch data =
        make_token_batch({.batch = batch,
                          .length = length,
                          .vocabulary = transformer_shape(settings_.model).vocabulary},
                         settings_.seed, device_context_);
    rows_.add(labels, series_of_ranks(measure_ways(ways, data), ways));
  }

  // Seconds on this rank: [repetitions, ways, kIterationParts].
  at::Tensor measure_ways(const std::vector<Way>& ways, const LabelledBatch& data) {
    std::vector<Trainer> trainers;
    trainers.reserve(ways.size());
    for (const Way& way : ways) {
      trainers.emplace_back(way.variant, settings_.interleaved ? new_model() : model_,
                            device_context_.group, TrainerOptions{way.options});
    }
    if (settings_.interleaved && !checked_) {
      expect_equal_gradients(ways, trainers, data);
    }
    std::vector<torch::optim::AdamW> optimizers;
    for (const Trainer& trainer : trainers) {
      optimizers.emplace_back(tensors_of(trainer.parameters()));
    }
    return measure_interleaved(
        settings_.repetitions, ways.size(),
        [&](std::size_t way) { return iterate(trainers[way], optimizers[way], data); }, &progress_);
  }

  void expect_equal_gradients(const std::vector<Way>& ways, std::vector<Trainer>& trainers,
                              const LabelledBatch& data) {
    std::vector<std::string> names;
    for (const Way& way : ways) {
      names.push_back(way.variant);
    }
    check_gradients(names, trainers, std::ranges::find(names, kReducerVariant) - names.begin(),
                    data);
    checked_ = true;
  }

  // Forward, loss, backward, finish(), optimizer; seconds of each of kIterationParts. On a GPU,
  // finish() begins when the computation of backward has ended there, so that its time is what
  // overlap could not hide.
  std::vector<double> iterate(Trainer& trainer, torch::optim::AdamW& optimizer,
                              const LabelledBatch& batch) const {
    const auto train = make_device_timer(device_context_.device),
               part = make_device_timer(device_context_.device);
    double backward = 0;
    const double whole = seconds_together(*train, device_context_.group, [&] {
      const at::Tensor loss = trainer.forward(batch);
      part->start();
      trainer.backward(loss);
      part->stop();
      backward = part->seconds();  // returns when the device has finished backward
      part->start();
      trainer.finish();
      part->stop();
      optimizer.step();
      // Not by zero_grad(), which first detaches gradients, and so throws if they are views of
      // buckets.
      for (const NamedTensor& parameter : trainer.parameters()) {
        parameter.tensor.mutable_grad().reset();
      }
    });
    return {whole, backward, part->seconds()};
  }

  std::vector<Series> series_of_ranks(const at::Tensor& times, const std::vector<Way>& ways) const {
    const at::Tensor all =
        all_gather(times.to(device_context_.device), device_context_.group).cpu();
    std::vector<Series> series;
    for (std::size_t way = 0; way < ways.size(); ++way) {
      for (std::size_t part = 0; part < kIterationParts.size(); ++part) {
        for (std::int64_t rank = 0; rank < all.size(0); ++rank) {
          series.push_back(series_of(
              all[rank], way, part,
              joined(ways[way].labels, {{kPartLabel, kIterationParts[part]}, {"rank", rank}})));
        }
      }
    }
    return series;
  }

  const TrainingSettings& settings_;
  const DeviceContext& device_context_;
  ResumableRows& rows_;
  const std::shared_ptr<Model> model_;  // shared by all variants, unless they are interleaved
  const std::vector<Way> ways_;
  Progress progress_;
  bool checked_ = false;
};

}  // namespace

Result train_on_ranks(const TrainingSettings& settings, const DeviceContext& device_context) {
  if (!device_context.device.is_cpu()) {
    const std::string problem = why_no_memory(settings.trained(), 1, device_context.device);
    TORCH_CHECK(problem.empty(), problem);
  }
  keep_freed_memory();
  ResumableRows rows(settings,
                     {.run = to_run(settings, kTrainingProgram, device_context.group),
                      .parameters = parameters_of(settings)},
                     device_context);
  Measurement(settings, device_context, rows).run();
  return rows.finish();
}

}  // namespace ddp
