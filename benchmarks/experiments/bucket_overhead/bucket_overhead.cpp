// Stage 03: the time that bucketed DDP adds to computing alone, for several bucket sizes, compared
// with the handout's formula and the simulated cluster.
//
//     overhead(b) = s/b · o + b/w        least at b* = sqrt(s · w · o)
//
//     s  the gradients' bytes
//     o  the cost of an all-reduce whatever its size
//     w  the bytes that an all-reduce moves per second
//
// o and w are measured first, with messages that are launched one after another and then waited
// for, as in DDP. The simulated cluster gets the same o and w, no latency, and the measured
// computing time, shared among the weights.
//
// All caps and computing alone are interleaved, step by step, each with a model of its own. A step
// is forward, backward and finish(), begins on all ranks together, and takes the time of the
// slowest.

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <vector>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "measuring/benchmark.h"
#include "measuring/command_line.h"
#include "measuring/interleaved.h"
#include "measuring/on_cluster.h"
#include "measuring/trainer.h"
#include "measuring/variants.h"
#include "measuring/workload.h"
#include "models/profiles/model_profile.h"
#include "models/transformer.h"

namespace {

using namespace ddp;

// The cost of an all-reduce of n bytes: overhead + n / bandwidth.
struct LinkCosts {
  double overhead = 0;   // o, seconds
  double bandwidth = 0;  // w, bytes per second
};

constexpr std::int64_t kSmallest = 64;
constexpr std::int64_t kMostInFlight = 64;
constexpr int kPerStep = 4;  // messages are short

// The time per message when several are launched together.
Series measure_size(std::int64_t bytes, std::int64_t largest, const Repetitions& repetitions,
                    const DeviceContext& device_context) {
  const std::int64_t count = std::clamp(largest / bytes, std::int64_t{1}, kMostInFlight);
  std::vector<at::Tensor> messages;
  for (std::int64_t i = 0; i < count; ++i) {
    messages.push_back(
        at::zeros({bytes / std::int64_t{sizeof(float)}}, at::device(device_context.device)));
  }
  const auto timer = make_device_timer(device_context.device);
  std::vector<WorkPtr> works(messages.size());
  const at::Tensor times = measure_interleaved(
      {.measured = kPerStep * repetitions.measured, .warmup = repetitions.warmup}, 1,
      [&](std::size_t) -> std::vector<double> {
        const double seconds = seconds_together(*timer, device_context.group, [&] {
          for (std::size_t i = 0; i < messages.size(); ++i) {
            works[i] = all_reduce_async(messages[i], device_context.group);
          }
          for (const WorkPtr& work : works) {
            work->wait();
          }
        });
        return {seconds / static_cast<double>(count)};
      });
  return series_of(largest_of_ranks(times, device_context), 0, 0,
                   {{"quantity", "message"}, {"bytes", bytes}});
}

// The time of an all-reduce of 64 bytes, 256 and so on, and of `largest`, launched as in bucketed
// DDP: as many as fit into `largest` bytes, but at most 64, are launched one after another and
// then waited for, and the time is divided by their number. Of the slowest rank, four times as
// often as `repetitions`. Collective. Series {"quantity": "message", "bytes": n}.
std::vector<Series> measure_messages(std::int64_t largest, const Repetitions& repetitions,
                                     const DeviceContext& device_context) {
  std::vector<Series> series;
  for (std::int64_t bytes = kSmallest; bytes < largest; bytes *= 4) {
    series.push_back(measure_size(bytes, largest, repetitions, device_context));
  }
  series.push_back(measure_size(largest, largest, repetitions, device_context));
  return series;
}

// From the medians of measure_messages(): the overhead is the time of the smallest message, and
// the additional time of the largest is that of its bytes. Throws c10::Error if there is none.
LinkCosts link_costs(const std::vector<Series>& messages) {
  const auto median = [](const Series& series) { return percentile(series.values, 50); };
  const double overhead = median(messages.front());
  const double transfer = median(messages.back()) - overhead;
  const auto bytes = std::get<std::int64_t>(messages.back().labels.back().second);
  TORCH_CHECK(transfer > 0, "an all-reduce of ", bytes,
              " bytes takes no longer than one of a few, so there is no bandwidth to be found; run "
              "it again when the machine is less busy");
  return {.overhead = overhead, .bandwidth = static_cast<double>(bytes) / transfer};
}

constexpr const char* kProgram = "bucket_overhead";
constexpr const char* kBucketed = "bucketed";
// The timed parts of a step: the whole, and forward.
constexpr std::size_t kStep = 0;
constexpr std::size_t kForward = 1;

const std::map<std::string, Repetitions> kPresets = {
    {"quick", {.measured = 8, .warmup = 3}},
    {"full", {.measured = 100, .warmup = 10}},
    {"paper", {.measured = 100, .warmup = 10}},
};
const PresetsInWords kInWords = {
    .quick = "--warmup 3 --repetitions 8",
    .full = "--warmup 10 --repetitions 100",
    .paper = "the same on the hardware of the published experiment, 2 GPUs in one machine"};
const Hardware kPublished = {.gpus = 2};

struct Settings : BenchmarkOptions {
  std::string model = "reduced";
  std::int64_t batch = 2, length = 32;
  int caps = 12;
  Repetitions repetitions;

  TransformerShape shape() const { return transformer_shape(model); }
  std::int64_t gradient_bytes() const {
    return std::int64_t{sizeof(float)} * parameter_count(shape());
  }
  // All gradients in one bucket, and caps that are half the previous one; the smallest first.
  std::vector<std::int64_t> cap_bytes() const {
    std::vector<std::int64_t> all;
    all.reserve(caps);
    for (int halvings = caps - 1; halvings >= 0; --halvings) {
      all.push_back(std::max(std::int64_t{1}, gradient_bytes() >> halvings));
    }
    return all;
  }
};

std::vector<double> time_step(Trainer& trainer, const LabelledBatch& batch,
                              const DeviceContext& device_context) {
  const auto step = make_device_timer(device_context.device),
             forward = make_device_timer(device_context.device);
  const double seconds = seconds_together(*step, device_context.group, [&] {
    forward->start();
    const at::Tensor loss = trainer.forward(batch);
    forward->stop();
    trainer.backward(loss);
    trainer.finish();
  });
  trainer.update();
  return {seconds, forward->seconds()};
}

// Seconds of the slowest rank: [repetitions, 1 + caps, kStep and kForward]; first computing alone.
at::Tensor measure_steps(const Settings& settings, const DeviceContext& device_context) {
  const LabelledBatch batch = make_token_batch({.batch = settings.batch,
                                                .length = settings.length,
                                                .vocabulary = settings.shape().vocabulary},
                                               settings.seed, device_context);
  std::vector<Trainer> trainers;
  trainers.reserve(1 + settings.caps);
  const auto add = [&](const char* variant, std::int64_t cap_bytes) {
    trainers.emplace_back(variant,
                          make_transformer(settings.shape(), {.seed = settings.seed,
                                                              .device = device_context.device}),
                          device_context.group, TrainerOptions{{.cap_bytes = cap_bytes}});
  };
  add(kComputeOnly, 1);
  for (const std::int64_t cap : settings.cap_bytes()) {
    add(kBucketed, cap);
  }
  Progress progress("bucket_overhead, repetitions", settings.repetitions.all(),
                    device_context.group->getRank());
  const at::Tensor times = measure_interleaved(
      settings.repetitions, trainers.size(),
      [&](std::size_t way) { return time_step(trainers[way], batch, device_context); }, &progress);
  return largest_of_ranks(times, device_context);
}

std::vector<Series> step_series(const at::Tensor& times, const Settings& settings) {
  std::vector<Series> series = {
      series_of(times, 0, kStep, {{"quantity", "step"}, {"variant", kComputeOnly}}),
      series_of(times, 0, kForward, {{"quantity", "forward"}, {"variant", kComputeOnly}})};
  const std::vector<std::int64_t> caps = settings.cap_bytes();
  for (std::size_t i = 0; i < caps.size(); ++i) {
    series.push_back(
        series_of(times, i + 1, kStep,
                  {{"quantity", "step"}, {"variant", kBucketed}, {"cap_bytes", caps[i]}}));
  }
  return series;
}

// The linear layers share the time of computing, in proportion to their elements.
std::vector<cluster::TimedLayer> layers_of(const ProfiledModel& model,
                                           const cluster::Device& device, double forward_s,
                                           double backward_s) {
  std::vector<cluster::TimedLayer> layers = model.timed_layers(device, {});
  const auto elements = [](const cluster::TimedLayer& layer) {
    const bool computes = !layer.parameters.empty() && layer.parameters[0].dim() == 2 &&
                          layer.name != "token_embeddings";
    return computes ? static_cast<double>(layer.parameters[0].numel()) : 0.0;
  };
  double all = 0;
  for (const cluster::TimedLayer& layer : layers) {
    all += elements(layer);
  }
  for (cluster::TimedLayer& layer : layers) {
    layer.forward_ns = std::llround(1e9 * forward_s * elements(layer) / all);
    layer.backward_ns = std::llround(1e9 * backward_s * elements(layer) / all);
  }
  return layers;
}

// What the simulated cluster says of so many ranks: an all-reduce costs its launch and the time of
// its bytes. Exact, and the same in every run.
std::vector<Series> simulate(const Settings& settings, const LinkCosts& link,
                             const at::Tensor& times, int ranks) {
  const at::Tensor medians = times.select(1, 0).quantile(0.5, 0);  // of computing alone
  const double step = medians[kStep].item<double>(), forward = medians[kForward].item<double>();
  const double part = 2.0 * (ranks - 1) / ranks;  // of the bytes, as a ring moves
  cluster::ClusterOptions options =
      cluster::bare_network(ranks, {.beta_ns_per_byte = 1e9 / link.bandwidth / part});
  options.collective_launch_ns = std::llround(1e9 * link.overhead);
  cluster::Cluster cluster(options);
  const ProfiledModel model(transformer_profile(settings.model, settings.shape(), {}));
  cluster::TimedModel timed(cluster, layers_of(model, options.device, forward, step - forward),
                            tensors_of(model.named_parameters()));
  const auto total_ns = [&](const char* variant, std::int64_t cap_bytes) {
    return simulate_step(variant, cluster, timed, {.cap_bytes = cap_bytes}).total_ns;
  };
  std::vector<Series> series;
  for (const std::int64_t cap : settings.cap_bytes()) {
    series.push_back(exact_time({{"quantity", "simulated overhead"}, {"cap_bytes", cap}},
                                in_seconds(total_ns(kBucketed, cap) - total_ns(kComputeOnly, 1))));
  }
  return series;
}

double formula(const Settings& settings, const LinkCosts& link, std::int64_t cap_bytes) {
  const auto cap = static_cast<double>(cap_bytes);
  return static_cast<double>(settings.gradient_bytes()) / cap * link.overhead +
         cap / link.bandwidth;
}

double best_cap(const Settings& settings, const LinkCosts& link) {
  return std::sqrt(static_cast<double>(settings.gradient_bytes()) * link.bandwidth * link.overhead);
}

Parameters parameters_of(const Settings& settings, const LinkCosts& link) {
  return {{"model", settings.model},
          {"parameters", parameter_count(settings.shape())},
          {"gradient_bytes", settings.gradient_bytes()},
          {"batch_size", settings.batch},
          {"sequence_length", settings.length},
          {"repetitions", settings.repetitions.measured},
          {"warmup", settings.repetitions.warmup},
          {"rate_gbit", settings.rate_gbit},
          {"latency_us", settings.latency_us},
          {"overhead_s", link.overhead},
          {"bandwidth_bytes_per_s", link.bandwidth},
          {"best_cap_bytes", best_cap(settings, link)}};
}

void print_table(const Settings& settings, const LinkCosts& link, const at::Tensor& times,
                 const std::vector<Series>& simulated) {
  std::printf("s = %lld bytes, w = %.4g bytes/s, o = %.4g s: b* = %.0f bytes\n",
              static_cast<long long>(settings.gradient_bytes()), link.bandwidth, link.overhead,
              best_cap(settings, link));
  std::printf("%-12s%14s%14s%14s\n", "cap [bytes]", "measured [ms]", "formula [ms]",
              "simulated [ms]");
  const at::Tensor beyond =
      (times.select(2, kStep) - times.select(2, kStep).narrow(1, 0, 1)).quantile(0.5, 0);
  const std::vector<std::int64_t> caps = settings.cap_bytes();
  for (std::size_t i = 0; i < caps.size(); ++i) {
    std::printf("%-12lld%14.3f%14.3f", static_cast<long long>(caps[i]),
                1e3 * beyond[static_cast<std::int64_t>(i) + 1].item<double>(),
                1e3 * formula(settings, link, caps[i]));
    std::printf("%14.3f\n", 1e3 * simulated[i].values.front());
  }
}

void run_rank(const RankContext& context, const Settings& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  TORCH_CHECK_VALUE(context.world_size > 1, "one rank has nothing to reduce: start ", kProgram,
                    " with 2 ranks or more");
  usable_variants({kBucketed}, settings.implementation, device_context);
  keep_freed_memory();
  std::vector<Series> series =
      measure_messages(settings.gradient_bytes(), settings.repetitions, device_context);
  const LinkCosts link = link_costs(series);
  const at::Tensor times = measure_steps(settings, device_context);
  if (context.rank == 0) {
    const std::vector<Series> simulated = simulate(settings, link, times, context.world_size);
    std::ranges::move(step_series(times, settings), std::back_inserter(series));
    series.insert(series.end(), simulated.begin(), simulated.end());
    save_result(settings, {.run = to_run(settings, kProgram, device_context.group),
                           .parameters = parameters_of(settings, link),
                           .series = series});
    print_table(settings, link, times, simulated);
  }
  save_trace(settings, context, device_context);
}

void add_flags(CLI::App& line, Settings& settings) {
  add_choice(line, "--model", settings.model, "What is trained", transformer_names());
  add_number(line, "--batch-size", settings.batch, "Sequences of each rank");
  add_number(line, "--sequence-length", settings.length, "Tokens of a sequence");
  add_number(line, "--caps", settings.caps,
             "How many: all gradients in one bucket, half of them, and so on", 2, 32);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line(
      "What buckets of each size add to computing, by measurement, formula and simulation");
  Settings settings;
  settings.repetitions = chosen(kPresets, argc, argv);
  ddp::add_flags(line, settings, argc, argv);
  add_flags(line, settings.repetitions);
  add_flags(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv, settings, kPublished)) {
    return *code;
  }
  const TrainedModels trained = {.model = settings.model,
                                 .of_each_rank = static_cast<std::size_t>(settings.caps) + 1};
  if (const int code = check_memory(settings, trained)) {
    return code;
  }
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
