// Stages 01 to 03: how long a training step takes with each variant, compared with libtorch's own
// c10d::Reducer and with computing alone; with --apart, where its time goes; with --optimizer adamw,
// optimizers that are sharded beside one that is not.
//
// The variants are interleaved, step by step, each on a model of its own. A step begins on all
// ranks together and contains forward, backward, finish() and the optimizer; its time is that of
// the slowest rank. Variants are compared within a repetition, so that a machine that is sometimes
// busy hardly disturbs the ratios. With --apart ranks start each part of a step together, so that
// the communication time contains no waiting for a slower rank.
#include <ATen/ATen.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "measuring/benchmark.h"
#include "measuring/command_line.h"
#include "measuring/trainer.h"
#include "measuring/variants.h"
#include "measuring/workload.h"
#include "models/resnet.h"

namespace {

using namespace ddp;

constexpr const char* kBaseline = "Reducer";  // whose gradients are the reference

constexpr int kMlpBatch = 64;  // for all presets
constexpr double kAdamRate = 1e-3;
constexpr double kTolerance = 1e-3;  // of the loss after all steps of AdamW

const std::map<std::string, Size> kPresets = {
    {"quick", {.batch = 4, .image = 32, .steps = 5, .warmup = 2}},
    {"full", {.batch = 8, .image = 128, .steps = 30, .warmup = 3}},
    {"paper", {.batch = 32, .image = 224, .steps = 50, .warmup = 5}},
};
const PresetsInWords kInWords = {
    .quick = "2 steps to warm up, 5 measured; ResNets on 4 images of 32x32 a rank",
    .full = "3 and 30 steps; ResNets on 8 images of 128x128",
    .paper =
        "5 and 50 steps; ResNets on 32 images of 224x224, on 2 GPUs. The MLP has 64 samples a "
        "rank with each preset",
};
const Hardware kPublished = {.gpus = 2};

struct Settings : BenchmarkOptions {
  Workload workload{.model = kMlp};
  std::vector<std::string> variants;
  bool apart = false;
  std::string optimizer = "sgd";
  TrainerOptions trainer{{.first_bucket_bytes = 0}};  // 0: the cap, as bucketed has it

  bool by_adamw() const { return optimizer == "adamw"; }

  // What is timed: the whole step, and the call of finish() in it; or each part.
  std::vector<std::string> parts() const {
    return apart ? std::vector<std::string>{"forward", "backward", "communication", "optimizer"}
                 : std::vector<std::string>{"step", "finish"};
  }
};

// One step, begun together by all ranks. Seconds of the step, and of finish().
std::vector<double> time_step(Trainer& trainer, const LabelledBatch& batch,
                              const DeviceContext& device_context) {
  const auto step = make_device_timer(device_context.device),
             finish = make_device_timer(device_context.device);
  const double seconds = seconds_together(*step, device_context.group, [&] {
    trainer.backward(trainer.forward(batch));
    finish->start();
    trainer.finish();
    finish->stop();
    trainer.update();
  });
  return {seconds, finish->seconds()};
}

// One step in parts, each begun together by all ranks.
std::vector<double> time_apart(Trainer& trainer, const LabelledBatch& batch,
                               const DeviceContext& device_context) {
  const auto timer = make_device_timer(device_context.device);
  const auto timed = [&](const std::function<void()>& part) {
    return seconds_together(*timer, device_context.group, part);
  };
  at::Tensor loss;
  return {timed([&] { loss = trainer.forward(batch); }), timed([&] { trainer.backward(loss); }),
          timed([&] { trainer.finish(); }), timed([&] { trainer.update(); })};
}

std::vector<Trainer> make_trainers(const Settings& settings,
                                   const std::vector<std::string>& variants,
                                   const DeviceContext& device_context) {
  TrainerOptions options = settings.trainer;
  options.timeline = device_context.timeline;
  if (settings.by_adamw()) {
    options.optimizer = [](std::vector<at::Tensor> parameters) {
      return std::make_unique<torch::optim::AdamW>(std::move(parameters), kAdamRate);
    };
  }
  std::vector<Trainer> trainers;
  trainers.reserve(variants.size());
  for (const std::string& variant : variants) {
    std::shared_ptr<Model> model;
    if (settings.workload.model == kMlp) {
      const std::shared_ptr<LayeredModel> mlp = make_mlp(settings.seed, device_context.device);
      options.units = mlp->units();
      model = mlp;
    } else {
      model = make_model(settings.workload.model, settings.seed, device_context.device);
    }
    trainers.emplace_back(variant, std::move(model), device_context.group, options);
  }
  return trainers;
}

// Of equal weights, equal losses: else a variant that updates them itself is not worth measuring.
void check_losses(const std::vector<std::string>& variants, std::vector<Trainer>& trainers,
                  const LabelledBatch& batch) {
  std::vector<double> losses;
  for (Trainer& trainer : trainers) {
    const at::Tensor loss = trainer.forward(batch);
    trainer.backward(loss);
    trainer.finish();
    losses.push_back(loss.item<double>());
    TORCH_CHECK(std::abs(losses.back() - losses.front()) <= kTolerance * losses.front(),
                variants[losses.size() - 1], " ends with other parameters than ", variants.front(),
                ": the loss is ", losses.back(), ", not ", losses.front());
  }
}

// Series by variant, and for each by part.
std::vector<Series> measure(const Settings& settings, const std::vector<std::string>& variants,
                            const DeviceContext& device_context, std::vector<Trainer>& trainers) {
  const LabelledBatch batch = make_batch(settings.workload, settings.seed, device_context);
  if (!settings.by_adamw()) {
    const auto baseline = std::ranges::find(variants, kBaseline);
    check_gradients(variants, trainers,
                    baseline == variants.end() ? variants.size() - 1 : baseline - variants.begin(),
                    batch);
  }
  const auto time = settings.apart ? time_apart : time_step;
  const at::Tensor times =
      measure_steps("step_time", settings.workload.size, device_context, trainers,
                    [&](Trainer& trainer) { return time(trainer, batch, device_context); });
  if (settings.by_adamw()) {
    check_losses(variants, trainers, batch);
  }
  return series_of_all(times, labelled("variant", variants), labelled("part", settings.parts()));
}

void save(const Settings& settings, const std::vector<Series>& series,
          const DeviceContext& device_context, const Trainer& trainer) {
  const Parameters parameters = {
      {"rate_gbit", settings.rate_gbit},
      {"latency_us", settings.latency_us},
      {"optimizer", settings.optimizer},
      {"cap_bytes", settings.trainer.cap_bytes},
      {"first_bucket_bytes", settings.trainer.first_bucket_bytes},
      {"zero_gradients", static_cast<std::int64_t>(settings.trainer.zero_gradients)}};
  save_result(settings,
              {.run = to_run(settings, "step_time", device_context.group),
               .parameters = joined(describe(settings.workload, trainer.parameters()), parameters),
               .series = series});
}

// The speedup over another variant: the median of the repetitions' ratios. NaN if there is none.
double speedup(const std::vector<double>& own, const Series* other) {
  if (other == nullptr) {
    return std::nan("");
  }
  std::vector<double> ratios = other->values;
  for (std::size_t repetition = 0; repetition < ratios.size(); ++repetition) {
    ratios[repetition] /= own[repetition];
  }
  return percentile(ratios, 50);
}

void print_table(const Settings& settings, const std::vector<std::string>& variants,
                 const std::vector<Series>& series) {
  const std::vector<std::string> parts = settings.parts();
  std::printf("%-16s", "medians [ms]");
  for (const std::string& part : parts) {
    std::printf("%15s", part.c_str());
  }
  std::printf(settings.apart ? "\n" : "%9s%9s%12s%12s\n", "p10", "p90", "x naive", "x Reducer");
  const auto step_of = [&](const std::string& variant) -> const Series* {
    const auto found = std::ranges::find(variants, variant);
    return found == variants.end() ? nullptr : &series[(found - variants.begin()) * parts.size()];
  };
  for (const std::string& variant : variants) {
    const Series* const own = step_of(variant);
    const auto milliseconds = [&](std::size_t part, double percent) {
      return 1e3 * percentile(own[part].values, percent);
    };
    std::printf("%-16s", variant.c_str());
    for (std::size_t part = 0; part < parts.size(); ++part) {
      std::printf("%15.1f", milliseconds(part, 50));
    }
    if (!settings.apart) {
      std::printf("%9.1f%9.1f%12.2f%12.2f", milliseconds(0, 10), milliseconds(0, 90),
                  speedup(own->values, step_of("naive")), speedup(own->values, step_of(kBaseline)));
    }
    std::printf("\n");
  }
  if (!settings.apart) {
    std::printf("p10, p90, x: of the step; x: speedup, the median over the repetitions\n");
  }
}

void run_rank(const RankContext& context, const Settings& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  const std::vector<std::string> variants =
      usable_variants(settings.variants, settings.implementation, device_context);
  std::vector<Trainer> trainers = make_trainers(settings, variants, device_context);
  const std::vector<Series> series = measure(settings, variants, device_context, trainers);
  if (context.rank == 0) {
    save(settings, series, device_context, trainers.front());
    print_table(settings, variants, series);
  }
  save_trace(settings, context, device_context);
}

void add_flags(CLI::App& line, Settings& settings) {
  std::vector<std::string> models = resnet_names();
  models.emplace_back(kMlp);
  add_flags(line, settings.workload, models);
  line.add_option("--variants", settings.variants, "What is measured; default: all");
  line.add_flag("--apart", settings.apart, "Times the parts of a step, each begun by all together");
  add_choice(line, "--optimizer", settings.optimizer,
             "adamw: what averages gradients or updates shards, with AdamW; of the mlp",
             {"sgd", "adamw"});
  line.add_option("--cap-bytes", settings.trainer.cap_bytes, "A bucket's: bucketed and Reducer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  line.add_option("--first-bucket-bytes", settings.trainer.first_bucket_bytes,
                  "The Reducer's first bucket; 1048576 is PyTorch's default, 0 the cap")
      ->check(CLI::NonNegativeNumber)
      ->default_str("the cap");
  line.add_flag("--zero-gradients", settings.trainer.zero_gradients,
                "Set gradients to zero after a step instead of to none");
}

// Sets what follows from other flags.
void settle(const CLI::App& line, Settings& settings) {
  if (settings.workload.model == kMlp) {
    settings.workload.size.image = 0;
    settings.workload.size.batch =
        line.count("--batch-size") > 0 ? settings.workload.size.batch : kMlpBatch;
  }
  if (settings.variants.empty()) {
    settings.variants = settings.by_adamw() ? variants_with_optimizer() : all_variants();
  }
  if (settings.trainer.first_bucket_bytes == 0) {
    settings.trainer.first_bucket_bytes = settings.trainer.cap_bytes;
  }
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("How long a step takes with each way of averaging gradients");
  Settings settings;
  settings.workload.size = chosen(kPresets, argc, argv);
  ddp::add_flags(line, settings, argc, argv);
  add_flags(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv, settings, kPublished)) {
    return *code;
  }
  settle(line, settings);
  if (settings.by_adamw() && settings.workload.model != kMlp) {
    return refuse(line, "--optimizer adamw: what is sharded are the layers of --model mlp");
  }
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
