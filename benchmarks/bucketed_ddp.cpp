// Stage 03: how long an iteration of training a transformer takes with buckets of several sizes,
// and beside them the ways without buckets of stages 01 and 02, libtorch's c10d::Reducer, and
// computing alone. The published experiment trained xl on 2 GPUs.
//
// An iteration begins on all ranks together, and contains forward, the cross entropy of the next
// token, backward, finish() and AdamW. Of it are timed the whole, backward, and finish(). The
// Reducer waits inside backward, and has no finish(): the like of it is what its backward takes
// beyond that of computing alone. Each rank's times are kept; means over the iterations, and of
// those the largest of all ranks, are what is published.
//
// All ways take turns, iteration by iteration, each with a model of its own. Where there is no
// memory for that, they are measured one after the other, on one model.
#include "03_bucketed_ddp/bucketed_ddp.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "command_line.h"
#include "ddp/benchmark.h"
#include "ddp/transformer.h"
#include "support/cells.h"
#include "support/equal_gradients.h"
#include "support/presets.h"
#include "support/turns.h"
#include "support/variants.h"
#include "transformer/language_model.h"
#include "transformer/timed_iteration.h"
#include "transformer/training_lines.h"

namespace {

using namespace ddp;

constexpr const char* kBucketed = "bucketed";
constexpr const char* kReducer = "Reducer";
const std::vector<std::string> kVariants = {kBucketed,    "naive",  "flat",
                                            "overlapped", kReducer, kComputeOnly};
// Of the Reducer, as a part of xl's: PyTorch's defaults.
constexpr std::int64_t kReducerMegabytes = 25;
constexpr std::int64_t kReducerFirstMegabytes = 1;

struct Preset {
  const char* model;
  std::set<std::int64_t> sequence_lengths;
  Rounds rounds;
  bool turns;
};
const std::set<std::int64_t> kPublishedLengths = {128, 256, 512};
const std::map<std::string, Preset> kPresets = {
    {"quick", {"reduced", {16, 32, 64}, {.measured = 3, .warmup = 2}, true}},
    {"full", {"xl", kPublishedLengths, {.measured = 10, .warmup = 10}, false}},
    {"paper", {"xl", kPublishedLengths, {.measured = 10, .warmup = 10}, false}},
};
const PresetsInWords kInWords = {
    .quick =
        "--model reduced (xl at 1/50 of its width; caps are the same part of its gradients) "
        "--sequence-lengths 16,32,64 --warmup 2 --rounds 3 --turns",
    .full =
        "--model xl --sequence-lengths 128,256,512 --warmup 10 --rounds 10 --no-turns; takes 80 "
        "GB and hours on a CPU, so choose a smaller --model there",
    .paper = "the same on the hardware of the published experiment, 2 GPUs in one machine"};
const Hardware kPublished = {.gpus = 2, .model = ""};

struct Settings : BenchmarkOptions {
  std::string model;
  std::set<std::int64_t> batch_sizes = {2, 4};
  std::set<std::int64_t> sequence_lengths;
  std::set<std::int64_t> bucket_mb = {1, 10, 100, 1000};
  Rounds rounds;
  bool turns = true;

  std::int64_t cap(std::int64_t megabytes) const { return cap_of_model(megabytes, model); }
  TrainedModels trained() const {
    return {.model = model, .of_each_rank = turns ? bucket_mb.size() + kVariants.size() : 1};
  }
};

// A variant, and the size of its buckets where it has some.
struct Way {
  std::string variant;
  VariantOptions options;
  Parameters labels;
};

Way bucketed_way(const Settings& settings, std::int64_t megabytes, const Model& model) {
  const std::int64_t cap = settings.cap(megabytes);
  const auto buckets = assign_buckets(tensors_of(model.named_parameters()), cap).size();
  return {.variant = kBucketed,
          .options = {.cap_bytes = cap},
          .labels = {{kVariantLabel, kBucketed},
                     {kMegabytesLabel, megabytes},
                     {kCapLabel, cap},
                     {"buckets", static_cast<std::int64_t>(buckets)}}};
}

std::vector<Way> make_ways(const Settings& settings, const Model& model,
                           const Workplace& workplace) {
  const VariantOptions reducer = {.cap_bytes = settings.cap(kReducerMegabytes),
                                  .first_bucket_bytes = settings.cap(kReducerFirstMegabytes)};
  std::vector<Way> ways;
  for (const auto& variant : usable_variants(kVariants, settings.implementation, workplace)) {
    if (variant != kBucketed) {
      ways.push_back(
          {.variant = variant, .options = reducer, .labels = {{kVariantLabel, variant}}});
      continue;
    }
    for (const std::int64_t megabytes : settings.bucket_mb) {
      ways.push_back(bucketed_way(settings, megabytes, model));
    }
  }
  return ways;
}

class Measurement {
 public:
  Measurement(const Settings& settings, const Workplace& workplace, Cells& cells)
      : settings_(settings),
        workplace_(workplace),
        cells_(cells),
        model_(new_model()),
        ways_(make_ways(settings, *model_, workplace)) {
    if (workplace.group->getRank() == 0) {
      const std::size_t cells_of_size = settings.turns ? 1 : ways_.size();
      const std::size_t sizes = settings.batch_sizes.size() * settings.sequence_lengths.size();
      progress_.emplace("bucketed_ddp, rounds", static_cast<int>(cells_of_size * sizes) * rounds());
    }
  }

  void run() {
    for (const std::int64_t batch : settings_.batch_sizes) {
      for (const std::int64_t length : settings_.sequence_lengths) {
        const Parameters labels = {{kBatchLabel, batch}, {kLengthLabel, length}};
        if (settings_.turns) {
          measure_cell(labels, ways_, batch, length);
          continue;
        }
        for (const Way& way : ways_) {
          measure_alone(labels, way, batch, length);
        }
      }
    }
  }

 private:
  int rounds() const { return settings_.rounds.warmup + settings_.rounds.measured; }

  std::shared_ptr<Model> new_model() const {
    return make_transformer(transformer_shape(settings_.model),
                            {.seed = settings_.seed, .device = workplace_.device});
  }

  // The way is a cell of its own: its labels are the cell's.
  void measure_alone(Parameters labels, const Way& way, std::int64_t batch, std::int64_t length) {
    labels.insert(labels.end(), way.labels.begin(), way.labels.end());
    measure_cell(labels, {{.variant = way.variant, .options = way.options, .labels = {}}}, batch,
                 length);
  }

  void measure_cell(const Parameters& labels, const std::vector<Way>& ways, std::int64_t batch,
                    std::int64_t length) {
    if (cells_.has(labels)) {
      if (progress_) {
        progress_->skip(rounds());
      }
      return;
    }
    const LabelledBatch data =
        make_token_batch({.batch = batch,
                          .length = length,
                          .vocabulary = transformer_shape(settings_.model).vocabulary},
                         settings_.seed, workplace_);
    cells_.add(labels, series_of_ranks(measure_ways(ways, data), ways));
  }

  // Seconds on this rank: [rounds, ways, kIterationParts].
  at::Tensor measure_ways(const std::vector<Way>& ways, const LabelledBatch& data) {
    std::vector<Trainer> trainers;
    trainers.reserve(ways.size());
    for (const Way& way : ways) {
      trainers.emplace_back(way.variant,
                            make_language_model(settings_.turns ? new_model() : model_),
                            workplace_.group, TrainerOptions{way.options});
    }
    if (settings_.turns && !checked_) {
      expect_equal_gradients(ways, trainers, data);
    }
    std::vector<std::unique_ptr<AdamW>> optimizers;
    optimizers.reserve(ways.size());
    for (const Trainer& trainer : trainers) {
      optimizers.push_back(std::make_unique<AdamW>(trainer.parameters()));
    }
    TimedIteration iteration(workplace_);
    return take_turns(
        settings_.rounds, ways.size(),
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
    const auto peer = static_cast<std::size_t>(std::ranges::find(names, kReducer) - names.begin());
    check_gradients(names, trainers, peer, data);
    checked_ = true;
  }

  std::vector<Series> series_of_ranks(const at::Tensor& times, const std::vector<Way>& ways) const {
    const at::Tensor all = all_gather(times.to(workplace_.device), workplace_.group).cpu();
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

  const Settings& settings_;
  const Workplace& workplace_;
  Cells& cells_;
  const std::shared_ptr<Model> model_;  // of all ways, unless they take turns
  const std::vector<Way> ways_;
  std::optional<Progress> progress_;
  bool checked_ = false;
};

PartialResult header_of(const Settings& settings, const Workplace& workplace) {
  const TransformerShape shape = transformer_shape(settings.model);
  return {.run = to_run(settings, "bucketed_ddp", workplace.group),
          .parameters = {{"model", settings.model},
                         {"parameters", parameter_count(shape)},
                         {"d_model", shape.d_model},
                         {"d_ff", shape.d_ff},
                         {"layers", shape.layers},
                         {"heads", shape.heads},
                         {"vocabulary", shape.vocabulary},
                         {"dtype", "float32"},
                         {"optimizer", "AdamW"},
                         {"rounds", settings.rounds.measured},
                         {"warmup", settings.rounds.warmup},
                         {"turns", static_cast<std::int64_t>(settings.turns)},
                         {"reducer_cap_bytes", settings.cap(kReducerMegabytes)},
                         {"reducer_first_bucket_bytes", settings.cap(kReducerFirstMegabytes)},
                         {"rate_gbit", settings.rate_gbit}},
          .cells = {}};
}

void run_rank(const RankContext& context, const Settings& settings) {
  const Workplace workplace = make_workplace(settings, context);
  if (!workplace.device.is_cpu()) {
    const std::string problem = why_no_memory(settings.trained(), 1, workplace.device);
    TORCH_CHECK(problem.empty(), problem);
  }
  keep_freed_memory();
  Cells cells(settings, header_of(settings, workplace), workplace);
  Measurement(settings, workplace, cells).run();
  const Result result = cells.finish();
  if (context.rank == 0) {
    std::fputs(training_lines(result).c_str(), stdout);
  }
  save_trace(settings, context, workplace);
}

void add_flags(CLI::App& app, Settings& settings) {
  app.add_option("--model", settings.model, "What is trained; default: the preset's")
      ->check(CLI::IsMember(transformer_names()));
  const auto listed = [&](const char* flag, auto& values, const char* what) {
    app.add_option(flag, values, what)->delimiter(',')->check(CLI::Range(1, 1 << 20));
  };
  listed("--batch-sizes", settings.batch_sizes, "Sequences of each rank; default: 2,4");
  listed("--sequence-lengths", settings.sequence_lengths,
         "Tokens of a sequence; default: the preset's");
  listed("--bucket-mb", settings.bucket_mb,
         "Caps in MB of xl's gradients, of \"reduced\" the same part of its own; default: "
         "1,10,100,1000");
  app.add_flag(
      "--turns,!--no-turns", settings.turns,
      "All variants take turns, each with a model of its own; or one after the other, on one "
      "model. Default: the preset's");
}

// Takes from the preset what no flag has set.
void apply_preset(const CLI::App& app, Settings& settings) {
  const Preset& preset = kPresets.at(settings.preset);
  apply_preset(settings.rounds, preset.rounds);
  if (settings.model.empty()) {
    settings.model = preset.model;
  }
  if (settings.sequence_lengths.empty()) {
    settings.sequence_lengths = preset.sequence_lengths;
  }
  if (app.count("--turns") == 0) {
    settings.turns = preset.turns;
  }
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App app("Iteration time of a transformer over the size of buckets");
  Settings settings;
  ddp::add_flags(app, settings, argc, argv);
  add_flags(app, settings.rounds);
  add_resume_flag(app, settings);
  add_flags(app, settings);
  describe_presets(app, kInWords);
  CLI11_PARSE(app, argc, argv);
  if (const int code = check_preset(app, settings, kPublished)) {
    return code;
  }
  apply_preset(app, settings);
  if (const int code = check_memory(settings, settings.trained())) {
    return code;
  }
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
