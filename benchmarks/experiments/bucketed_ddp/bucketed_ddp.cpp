// Stage 03: how long an iteration of training a transformer takes with buckets of several sizes,
// compared with the variants without buckets of stages 01 and 02, libtorch's c10d::Reducer, and
// computing alone. The published experiment trained xl on 2 GPUs.
//
// Published sizes are called the maximum of a bucket. By stage 03's contract a size is a threshold:
// a bucket closes once it has reached it, and no tensor is cut. At 1 MB all 338 buckets of xl are
// larger, 10 to 61 times: a weight each. The reduced model's are larger by the same factors.
//
// An iteration begins on all ranks together, and contains forward, the cross entropy of the next
// token, backward, finish() and AdamW. The whole iteration, backward, and finish() are timed. The
// Reducer waits inside backward, and has no finish(): the corresponding time is that of its
// backward beyond that of computing alone. Each rank's times are kept; published are the means over
// the iterations, and of those the maximum over all ranks.
//
// All variants are interleaved, iteration by iteration, each with a model of its own. If there is
// not enough memory for that, they are measured one after another, on one model.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "experiments/bucketed_ddp/published.h"
#include "experiments/bucketed_ddp/timed_iteration.h"
#include "experiments/bucketed_ddp/training_lines.h"
#include "experiments/bucketed_ddp/ways.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/equal_gradients.h"
#include "harness/interleaved.h"
#include "harness/language_model.h"
#include "harness/presets.h"
#include "harness/resumable_rows.h"
#include "harness/variants.h"
#include "models/transformer.h"

namespace {

using namespace ddp;

struct Preset {
  const char* model;
  std::set<std::int64_t> sequence_lengths;
  Repetitions repetitions;
  bool interleaved;
};
const std::set<std::int64_t> kPublishedLengths = {128, 256, 512};
const std::map<std::string, Preset> kPresets = {
    {"quick", {"reduced", {16, 64}, {.measured = 8, .warmup = 2}, true}},
    {"full", {"xl", kPublishedLengths, {.measured = 10, .warmup = 10}, false}},
    {"paper", {"xl", kPublishedLengths, {.measured = 10, .warmup = 10}, false}},
    {kPublishedPreset, {"xl", kPublishedLengths, {.measured = 1, .warmup = 0}, false}},
};
const PresetsInWords kInWords = {
    .quick =
        "--model reduced (xl at 1/50 of its width; caps are the same part of its gradients) "
        "--sequence-lengths 16,64 --warmup 2 --repetitions 8 --interleaved",
    .full =
        "--model xl --sequence-lengths 128,256,512 --warmup 10 --repetitions 10 --sequential; "
        "takes 80 "
        "GB and hours on a CPU, so choose a smaller --model there",
    .paper = "the same on the hardware of the published experiment, 2 GPUs in one machine",
    .published =
        "xl at the published sizes, computed for the published hardware with the stages' code on a "
        "simulated cluster: seconds, without a GPU"};
const Hardware kPublished = {.gpus = 2, .model = ""};

class Measurement {
 public:
  Measurement(const TrainingSettings& settings, const DeviceContext& device_context,
              ResumableRows& rows)
      : settings_(settings),
        device_context_(device_context),
        rows_(rows),
        model_(new_model()),
        ways_(
            ways_of(settings, *model_,
                    usable_variants(kTrainingVariants, settings.implementation, device_context))) {
    if (device_context.group->getRank() == 0) {
      const std::size_t rows_of_size = settings.interleaved ? 1 : ways_.size();
      const std::size_t sizes = settings.batch_sizes.size() * settings.sequence_lengths.size();
      progress_.emplace("bucketed_ddp, repetitions",
                        static_cast<int>(rows_of_size * sizes) * repetitions());
    }
  }

  void run() {
    for (const std::int64_t batch : settings_.batch_sizes) {
      for (const std::int64_t length : settings_.sequence_lengths) {
        const Parameters labels = {{kBatchLabel, batch}, {kLengthLabel, length}};
        if (settings_.interleaved) {
          measure_row(labels, ways_, batch, length);
          continue;
        }
        for (const Way& way : ways_) {
          measure_alone(labels, way, batch, length);
        }
      }
    }
  }

 private:
  int repetitions() const { return settings_.repetitions.warmup + settings_.repetitions.measured; }

  std::shared_ptr<Model> new_model() const {
    return make_transformer(transformer_shape(settings_.model),
                            {.seed = settings_.seed, .device = device_context_.device});
  }

  // Each variant is a row of its own, with the row's labels.
  void measure_alone(Parameters labels, const Way& way, std::int64_t batch, std::int64_t length) {
    labels.insert(labels.end(), way.labels.begin(), way.labels.end());
    measure_row(labels, {{.variant = way.variant, .options = way.options, .labels = {}}}, batch,
                length);
  }

  void measure_row(const Parameters& labels, const std::vector<Way>& ways, std::int64_t batch,
                   std::int64_t length) {
    if (rows_.has(labels)) {
      if (progress_) {
        progress_->skip(repetitions());
      }
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
      trainers.emplace_back(way.variant,
                            make_language_model(settings_.interleaved ? new_model() : model_),
                            device_context_.group, TrainerOptions{way.options});
    }
    if (settings_.interleaved && !checked_) {
      expect_equal_gradients(ways, trainers, data);
    }
    std::vector<std::unique_ptr<AdamW>> optimizers;
    optimizers.reserve(ways.size());
    for (const Trainer& trainer : trainers) {
      optimizers.push_back(std::make_unique<AdamW>(trainer.parameters()));
    }
    TimedIteration iteration(device_context_);
    return measure_interleaved(
        settings_.repetitions, ways.size(),
        [&](std::size_t way) { return iteration.run(trainers[way], *optimizers[way], data); },
        progress_);
  }

  void expect_equal_gradients(const std::vector<Way>& ways, std::vector<Trainer>& trainers,
                              const LabelledBatch& data) {
    std::vector<std::string> names;
    names.reserve(ways.size());
    for (const Way& way : ways) {
      names.push_back(way.variant);
    }
    const auto peer =
        static_cast<std::size_t>(std::ranges::find(names, kReducerVariant) - names.begin());
    check_gradients(names, trainers, peer, data);
    checked_ = true;
  }

  std::vector<Series> series_of_ranks(const at::Tensor& times, const std::vector<Way>& ways) const {
    const at::Tensor all =
        all_gather(times.to(device_context_.device), device_context_.group).cpu();
    std::vector<Series> series;
    for (std::size_t way = 0; way < ways.size(); ++way) {
      for (std::size_t part = 0; part < kIterationParts.size(); ++part) {
        for (std::int64_t rank = 0; rank < all.size(0); ++rank) {
          Parameters labels = ways[way].labels;
          labels.insert(labels.end(), {{kPartLabel, kIterationParts[part]}, {"rank", rank}});
          series.push_back(series_of(all[rank], way, part, std::move(labels)));
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
  std::optional<Progress> progress_;
  bool checked_ = false;
};

PartialResult header_of(const TrainingSettings& settings, const DeviceContext& device_context) {
  return {.run = to_run(settings, kTrainingProgram, device_context.group),
          .parameters = parameters_of(settings),
          .rows = {}};
}

void run_rank(const RankContext& context, const TrainingSettings& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  if (!device_context.device.is_cpu()) {
    const std::string problem = why_no_memory(settings.trained(), 1, device_context.device);
    TORCH_CHECK(problem.empty(), problem);
  }
  keep_freed_memory();
  ResumableRows rows(settings, header_of(settings, device_context), device_context);
  Measurement(settings, device_context, rows).run();
  const Result result = rows.finish();
  if (context.rank == 0) {
    std::fputs(training_lines(result).c_str(), stdout);
  }
  save_trace(settings, context, device_context);
}

void compute(const TrainingSettings& settings) {
  const Result result = train_at_published_scale(settings);
  std::fputs(training_lines(result).c_str(), stdout);
  save_result(settings, result);
}

void add_flags(CLI::App& line, TrainingSettings& settings) {
  line.add_option("--model", settings.model, "What is trained; default: the preset's")
      ->check(CLI::IsMember(transformer_names()));
  const auto listed = [&](const char* flag, auto& values, const char* what) {
    line.add_option(flag, values, what)->check(CLI::Range(1, 1 << 20));
  };
  listed("--batch-sizes", settings.batch_sizes, "Sequences of each rank; default: 2,4");
  listed("--sequence-lengths", settings.sequence_lengths,
         "Tokens of a sequence; default: the preset's");
  listed("--bucket-mb", settings.bucket_mb,
         "Caps in MB of xl's gradients, of \"reduced\" the same part of its own; default: "
         "1,10,100,1000");
  line.add_flag(
      "--interleaved,!--sequential", settings.interleaved,
      "All variants interleaved, each with a model of its own; or one after another, on one "
      "model. Default: the preset's");
}

// Sets from the preset what no flag has set.
void apply_preset(const CLI::App& line, TrainingSettings& settings) {
  const Preset& preset = kPresets.at(settings.preset);
  apply_preset(settings.repetitions, preset.repetitions);
  if (settings.model.empty()) {
    settings.model = preset.model;
  }
  if (settings.sequence_lengths.empty()) {
    settings.sequence_lengths = preset.sequence_lengths;
  }
  if (line.count("--interleaved") == 0) {
    settings.interleaved = preset.interleaved;
  }
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("Iteration time of a transformer over the size of buckets");
  TrainingSettings settings;
  ddp::add_flags(line, settings, argc, argv);
  add_flags(line, settings.repetitions);
  add_resume_flag(line, settings);
  add_flags(line, settings);
  add_flags(line, settings.cluster, settings);
  add_shape_flag(line, settings.cluster, "With --preset published: ");
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (const std::string mistake = misplaced_flags(
          line, settings, {"--warmup", "--repetitions", "--interleaved", "--trace"});
      !mistake.empty()) {
    return refuse(line, mistake);
  }
  if (const int code = check_preset(line, settings, kPublished)) {
    return code;
  }
  apply_preset(line, settings);
  if (line.count("--shape") > 0) {
    if (settings.preset != kPublishedPreset) {
      return refuse(line, "--shape: only with --preset published");
    }
    settings.model = c10::Join(",", settings.cluster.shape);
  }
  if (settings.preset == kPublishedPreset) {
    return run_on_cluster([&] { compute(settings); });
  }
  if (const int code = check_memory(settings, settings.trained())) {
    return code;
  }
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
