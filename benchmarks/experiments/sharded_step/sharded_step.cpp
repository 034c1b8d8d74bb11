// How long a training step with AdamW takes on real ranks: with stage 03, whose ranks update everything,
// with stage 06, whose ranks update an N-th and gather the rest, and with stage 07, whose ranks gather
// each layer when it computes. The ways take turns in one run, and must end with equal parameters.
#include <ATen/ATen.h>
#include <torch/optim/adamw.h>

#include <cstdio>
#include <map>

#include "03_bucketed_ddp/bucketed_ddp.h"
#include "06_sharded_optimizer/sharded_optimizer.h"
#include "07_fully_sharded/fully_sharded.h"
#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "ddp/ranks/stage_library.h"
#include "harness/command_line.h"
#include "harness/interleaved.h"

namespace {

using namespace ddp;

constexpr const char* kProgram = "sharded_step";
constexpr double kRate = 1e-3;
constexpr double kTolerance = 1e-4;  // of parameters, which AdamW moves by kRate a step

const std::map<std::string, Repetitions> kPresets = {
    {"quick", {.measured = 5, .warmup = 2}},
    {"full", {.measured = 30, .warmup = 3}},
    {"paper", {.measured = 50, .warmup = 5}},
};

struct Settings : BenchmarkOptions {
  std::int64_t layers = 8, width = 1024, batch = 16;
  std::int64_t cap_bytes = std::int64_t{25} << 20;
  Repetitions repetitions;
};

std::unique_ptr<torch::optim::AdamW> adamw(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                               torch::optim::AdamWOptions(kRate));
}

// A chain of square layers, the same on all ranks and for all ways.
std::vector<at::Tensor> make_layers(const Settings& settings, const at::Device& device) {
  std::vector<at::Tensor> layers;
  for (std::int64_t i = 0; i < settings.layers; ++i) {
    const auto count = settings.width * settings.width;
    const at::Tensor values = at::arange(count, at::kDouble).mul_(0.618034 * (i + 1)).frac_();
    layers.push_back(values.sub_(0.5)
                         .div_(std::sqrt(settings.width / 12.0))
                         .to(device, at::kFloat)
                         .view({settings.width, settings.width})
                         .set_requires_grad(true));
  }
  return layers;
}

at::Tensor one_layer(const at::Tensor& x, const std::vector<at::Tensor>& parameters) {
  return at::tanh(at::matmul(x, parameters[0]));
}

// A way to train: its own copy of the model, and what follows backward.
struct Way {
  std::string name;
  std::vector<at::Tensor> layers;
  std::function<void()> end_step;
  std::shared_ptr<FullySharded> units = nullptr;  // in place of layers

  at::Tensor forward(at::Tensor x) const {
    for (std::size_t i = 0; i < (units ? units->shards() : layers).size(); ++i) {
      x = units ? units->forward(i, x) : one_layer(x, {layers[i]});
    }
    return x;
  }
};

Way plain(const Settings& settings, const DeviceContext& context) {
  Way way{
      .name = "bucketed, AdamW", .layers = make_layers(settings, context.device), .end_step = {}};
  const std::shared_ptr<GradientSynchronizer> synchronizer =
      make_bucketed_ddp(way.layers, {}, context.group, {.cap_bytes = settings.cap_bytes});
  const std::shared_ptr<torch::optim::Optimizer> optimizer = adamw(way.layers);
  way.end_step = [=, layers = way.layers] {
    synchronizer->finish();
    optimizer->step();
    for (const at::Tensor& layer : layers) {
      layer.mutable_grad().reset();
    }
  };
  return way;
}

Way sharded(const Settings& settings, const DeviceContext& context, bool overlap) {
  Way way{.name = overlap ? "sharded AdamW" : "sharded AdamW, no overlap",
          .layers = make_layers(settings, context.device),
          .end_step = {}};
  const std::shared_ptr<ShardedOptimizer> optimizer = make_sharded_optimizer(
      way.layers, {}, context.group, adamw, {.cap_bytes = settings.cap_bytes, .overlap = overlap});
  way.end_step = [=] { optimizer->step(); };
  return way;
}

Way fully_sharded(const Settings& settings, const DeviceContext& context, int prefetch) {
  std::vector<Unit> units;
  for (const at::Tensor& layer : make_layers(settings, context.device)) {
    units.push_back({{layer}, one_layer});
  }
  Way way{.name = "fully sharded, prefetch " + std::to_string(prefetch),
          .layers = {},
          .end_step = {},
          .units = make_fully_sharded(std::move(units), context.group, {.prefetch = prefetch})};
  const std::shared_ptr<torch::optim::Optimizer> optimizer = adamw(way.units->shards());
  way.end_step = [optimizer, model = way.units] {
    model->finish();
    optimizer->step();
    optimizer->zero_grad();
  };
  return way;
}

void check_equal(const std::vector<Way>& ways) {
  for (const Way& way : ways) {
    const auto layers = way.units ? way.units->whole_parameters() : way.layers;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const double off = (layers[i] - ways[0].layers[i]).abs().max().item<double>();
      TORCH_CHECK(off < kTolerance, way.name, " ends with other parameters than ", ways[0].name,
                  ": layer ", i, " differs by ", off);
    }
  }
}

void run_rank(const RankContext& context, const Settings& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  for (const char* stage : {"03_bucketed_ddp", "06_sharded_optimizer", "07_fully_sharded"}) {
    load_stage_library(stage_library(settings.implementation, stage));
  }
  std::vector<Way> ways = {plain(settings, device_context), sharded(settings, device_context, true),
                           sharded(settings, device_context, false)};
  try {
    ways.push_back(fully_sharded(settings, device_context, 1));
    ways.push_back(fully_sharded(settings, device_context, 0));
  } catch (const c10::NotImplementedError& error) {
    if (context.rank == 0) {
      std::fprintf(stderr, "stage 07 is left out: %s\n", error.what_without_backtrace());
    }
  }
  const at::Tensor input = at::full({settings.batch, settings.width}, 0.1 * (context.rank + 1),
                                    at::device(device_context.device).dtype(at::kFloat));
  Progress progress(kProgram, settings.repetitions.all(), context.rank);
  const auto timer = make_device_timer(device_context.device);
  const at::Tensor own = measure_interleaved(
      settings.repetitions, ways.size(),
      [&](std::size_t way) -> std::vector<double> {
        return {seconds_together(*timer, device_context.group, [&] {
          ways[way].forward(input).square().mean().backward();
          ways[way].end_step();
        })};
      },
      &progress);
  const at::Tensor times = largest_of_ranks(own, device_context);
  progress.clear_line();
  check_equal(ways);
  if (context.rank != 0) {
    return;
  }
  Result result = {.run = to_run(settings, kProgram, device_context.group),
                   .parameters = {{"layers", settings.layers},
                                  {"width", settings.width},
                                  {"batch_size", settings.batch},
                                  {"cap_bytes", settings.cap_bytes}}};
  for (std::size_t way = 0; way < ways.size(); ++way) {
    result.series.push_back(series_of(times, way, 0, {{"variant", ways[way].name}}));
    std::printf("%-26s %8.1f ms a step, the median\n", ways[way].name.c_str(),
                1e3 * percentile(result.series.back().values, 50));
  }
  save_result(settings, result);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("A training step with AdamW on real ranks: whole, and sharded");
  Settings settings;
  add_flags(line, settings, argc, argv);
  add_flags(line, settings.repetitions);
  add_number(line, "--layers", settings.layers, "Square layers", 1, 1000);
  add_number(line, "--width", settings.width, "Of a layer", 1, 1 << 16);
  add_number(line, "--batch-size", settings.batch, "Of a rank", 1, 1 << 16);
  line.add_option("--cap-bytes", settings.cap_bytes, "A bucket's")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  apply_preset(settings.repetitions, kPresets.at(settings.preset));
  return run_benchmark(settings, [&](RankContext& context) { run_rank(context, settings); });
}
