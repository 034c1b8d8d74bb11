// Stages 01 to 03: how long a training step takes with each variant, compared with libtorch's own
// c10d::Reducer and with computing alone.
//
// The variants are interleaved, step by step, each on a model of its own. A step begins on all
// ranks together and contains forward, backward, finish() and the optimizer; its time is that of
// the slowest rank. Variants are compared within a repetition, so that a machine that is sometimes
// busy hardly disturbs the ratios.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/trainer.h"
#include "harness/variants.h"
#include "harness/workload.h"
#include "models/resnet.h"

namespace {

using namespace ddp;

constexpr const char* kPeer = "Reducer";  // whose gradients are the reference

// The timed parts: the whole step, and the call of finish() in it.
constexpr std::array kParts = {"step", "finish"};
constexpr std::size_t kStep = 0;
constexpr std::size_t kFinish = 1;

constexpr int kMlpBatch = 64;  // for all presets

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
  Workload workload{.model = "mlp"};
  TrainerOptions trainer{{.first_bucket_bytes = 0}};  // 0: the cap, as bucketed has it
};

// One step, begun together by all ranks. Seconds of each of kParts.
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

// The measurements, variant by variant.
struct Measured {
  std::vector<std::string> variants;
  std::vector<Series> series;  // kParts of the first variant, kParts of the next ...

  // Seconds, repetition by repetition.
  const std::vector<double>& values(std::size_t variant, std::size_t part) const {
    return series[variant * kParts.size() + part].values;
  }

  // The speedup over `other`: the median of the repetitions' ratios. NaN if the other variant was
  // left out.
  double speedup(std::size_t variant, const std::string& other) const {
    const auto found = std::ranges::find(variants, other);
    if (found == variants.end()) {
      return std::nan("");
    }
    std::vector<double> ratios = values(found - variants.begin(), kStep);
    for (std::size_t repetition = 0; repetition < ratios.size(); ++repetition) {
      ratios[repetition] /= values(variant, kStep)[repetition];
    }
    return percentile(ratios, 50);
  }
};

Measured measure(const Settings& settings, const std::vector<std::string>& variants,
                 const DeviceContext& device_context, std::vector<Trainer>& trainers) {
  const LabelledBatch batch = make_batch(settings.workload, settings.seed, device_context);
  const auto peer = std::ranges::find(variants, kPeer) - variants.begin();
  check_gradients(variants, trainers, peer, batch);
  const at::Tensor times =
      measure_steps("step_time", settings.workload.size, device_context, trainers,
                    [&](Trainer& trainer) { return time_step(trainer, batch, device_context); });
  Measured measured = {.variants = variants, .series = {}};
  for (std::size_t variant = 0; variant < variants.size(); ++variant) {
    for (std::size_t part = 0; part < kParts.size(); ++part) {
      measured.series.push_back(series_of(
          times, variant, part, {{"variant", variants[variant]}, {"part", kParts[part]}}));
    }
  }
  return measured;
}

void save(const Settings& settings, const Measured& measured, const DeviceContext& device_context,
          const Trainer& trainer) {
  const Parameters parameters = {
      {"rate_gbit", settings.rate_gbit},
      {"latency_us", settings.latency_us},
      {"cap_bytes", settings.trainer.cap_bytes},
      {"first_bucket_bytes", settings.trainer.first_bucket_bytes},
      {"zero_gradients", static_cast<std::int64_t>(settings.trainer.zero_gradients)}};
  save_result(settings,
              {.run = to_run(settings, "step_time", device_context.group),
               .parameters = joined(describe(settings.workload, trainer.parameters()), parameters),
               .series = measured.series});
}

void print_table(const Measured& measured) {
  std::printf("%-16s%10s%9s%9s%9s%12s%12s\n", "a step [ms]", "median", "p10", "p90", "finish()",
              "x naive", "x Reducer");
  for (std::size_t variant = 0; variant < measured.variants.size(); ++variant) {
    const auto milliseconds = [&](std::size_t part, double percent) {
      return 1e3 * percentile(measured.values(variant, part), percent);
    };
    std::printf("%-16s%10.1f%9.1f%9.1f%9.1f%12.2f%12.2f\n", measured.variants[variant].c_str(),
                milliseconds(kStep, 50), milliseconds(kStep, 10), milliseconds(kStep, 90),
                milliseconds(kFinish, 50), measured.speedup(variant, "naive"),
                measured.speedup(variant, kPeer));
  }
  std::printf("x: speedup, the median over the repetitions\n");
}

void run_rank(const RankContext& context, const Settings& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  const std::vector<std::string> variants =
      usable_variants(all_variants(), settings.implementation, device_context);
  TrainerOptions options = settings.trainer;
  options.timeline = device_context.timeline;
  std::vector<Trainer> trainers;
  trainers.reserve(variants.size());
  for (const std::string& variant : variants) {
    trainers.emplace_back(variant,
                          make_model(settings.workload.model, settings.seed, device_context.device),
                          device_context.group, options);
  }
  const Measured measured = measure(settings, variants, device_context, trainers);
  if (context.rank == 0) {
    save(settings, measured, device_context, trainers.front());
    print_table(measured);
  }
  save_trace(settings, context, device_context);
}

Size preset_of(const Settings& settings) {
  Size preset = kPresets.at(settings.preset);
  if (settings.workload.model == kMlp) {
    preset.batch = kMlpBatch;
    preset.image = 0;
  }
  return preset;
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("How long a step takes with each way of averaging gradients");
  Settings settings;
  add_flags(line, settings, argc, argv);
  std::vector<std::string> models = resnet_names();
  models.emplace_back(kMlp);
  add_flags(line, settings.workload, models);
  line.add_option("--cap-bytes", settings.trainer.cap_bytes, "A bucket's: bucketed and Reducer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  line.add_option("--first-bucket-bytes", settings.trainer.first_bucket_bytes,
                  "The Reducer's first bucket; 1048576 is PyTorch's default, 0 the cap")
      ->check(CLI::NonNegativeNumber)
      ->default_str("the cap");
  line.add_flag("--zero-gradients", settings.trainer.zero_gradients,
                "Set gradients to zero after a step instead of to none");
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv, settings, kPublished)) {
    return *code;
  }
  apply_preset(settings.workload.size, preset_of(settings));
  if (settings.trainer.first_bucket_bytes == 0) {
    settings.trainer.first_bucket_bytes = settings.trainer.cap_bytes;
  }
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
