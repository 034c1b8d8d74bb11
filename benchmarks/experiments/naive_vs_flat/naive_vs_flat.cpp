// Stage 01: the cost of one all-reduce per parameter compared with one for all of them, on ResNet's
// real parameter list.
//
// Three variants are interleaved, step by step, each on a model of its own: naive DDP, flat DDP,
// and the same training without communication. Ranks start each part of a step together, so that
// the communication time contains no waiting for a slower rank. A part's time is that of the
// slowest rank.
#include <array>
#include <cstdio>
#include <map>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/trainer.h"
#include "harness/workload.h"
#include "models/resnet.h"

namespace {

using namespace ddp;

constexpr std::array kVariants = {kComputeOnly, "naive", "flat"};
constexpr std::array kPhases = {"forward", "backward", "communication", "optimizer"};

const std::map<std::string, Size> kPresets = {
    {"quick", {.batch = 4, .image = 64, .steps = 7, .warmup = 1}},
    {"full", {.batch = 8, .image = 128, .steps = 30, .warmup = 3}},
    {"paper", {.batch = 32, .image = 224, .steps = 50, .warmup = 5}},
};
const PresetsInWords kInWords = {
    .quick = "1 step to warm up, 7 measured, on 4 images of 64x64 a rank",
    .full = "3 and 30 steps, on 8 images of 128x128",
    .paper = "5 and 50 steps, on 32 images of 224x224, on 2 GPUs",
};
const Hardware kPublished = {.gpus = 2};

struct Settings : BenchmarkOptions {
  Workload workload{.model = "resnet50"};
};

// One step in parts, each begun together by all ranks: seconds of each phase.
std::vector<double> time_step(Trainer& trainer, const LabelledBatch& batch,
                              const DeviceContext& device_context) {
  const auto timer = make_device_timer(device_context.device);
  const auto timed = [&](const std::function<void()>& part) {
    return seconds_together(*timer, device_context.group, part);
  };
  at::Tensor loss;
  return {
      timed([&] { loss = trainer.forward(batch); }),
      timed([&] { trainer.backward(loss); }),
      timed([&] { trainer.finish(); }),
      timed([&] { trainer.update(); }),
  };
}

Result to_result(const Settings& settings, const at::Tensor& times, const ProcessGroupPtr& group,
                 const Trainer& trainer) {
  Result result = {.run = to_run(settings, "naive_vs_flat", group),
                   .parameters = joined(
                       describe(settings.workload, trainer.parameters()),
                       {{"rate_gbit", settings.rate_gbit}, {"latency_us", settings.latency_us}})};
  for (std::size_t variant = 0; variant < kVariants.size(); ++variant) {
    for (std::size_t phase = 0; phase < kPhases.size(); ++phase) {
      result.series.push_back(series_of(
          times, variant, phase, {{"variant", kVariants[variant]}, {"phase", kPhases[phase]}}));
    }
  }
  return result;
}

void print_table(const Result& result) {
  std::printf("%-14s", "median [ms]");
  for (const char* phase : kPhases) {
    std::printf("%15s", phase);
  }
  std::printf("%15s\n", "sum");
  for (std::size_t variant = 0; variant < kVariants.size(); ++variant) {
    std::printf("%-14s", kVariants[variant]);
    double sum = 0;
    for (std::size_t phase = 0; phase < kPhases.size(); ++phase) {
      const double milliseconds =
          1e3 * summarize(result.series[variant * kPhases.size() + phase].values).p50;
      sum += milliseconds;
      std::printf("%15.1f", milliseconds);
    }
    std::printf("%15.1f\n", sum);
  }
}

void run_rank(const RankContext& context, const Settings& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  TrainerOptions options;
  options.timeline = device_context.timeline;
  std::vector<Trainer> trainers;
  trainers.reserve(kVariants.size());
  for (const char* variant : kVariants) {
    trainers.emplace_back(variant,
                          make_model(settings.workload.model, settings.seed, device_context.device),
                          device_context.group, options);
  }
  const LabelledBatch batch = make_batch(settings.workload, settings.seed, device_context);
  const at::Tensor times =
      measure_steps("naive_vs_flat", settings.workload.size, device_context, trainers,
                    [&](Trainer& trainer) { return time_step(trainer, batch, device_context); });
  if (context.rank == 0) {
    const Result result = to_result(settings, times, device_context.group, trainers.front());
    save_result(settings, result);
    print_table(result);
  }
  save_trace(settings, context, device_context);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("Naive against flat DDP: where the time of a step goes");
  Settings settings;
  add_flags(line, settings, argc, argv);
  add_flags(line, settings.workload, resnet_names());
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv, settings, kPublished)) {
    return *code;
  }
  apply_preset(settings.workload.size, kPresets.at(settings.preset));
  return run_benchmark(settings, "01_naive_ddp",
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
