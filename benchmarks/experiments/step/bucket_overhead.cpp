// Stage 03: the time that bucketed DDP adds to computing alone, for several bucket sizes, compared
// with the handout's formula and the simulated cluster.
//
// Source: Stanford CS336, assignment 2, whose formula this is (stage 03's handout):
//
//     overhead(b) = s/b · o + b/w        least at b* = sqrt(s · w · o)
//
//     s  the gradients' bytes
//     o  the cost of an all-reduce whatever its size
//     w  the bytes that an all-reduce moves per second
//
// o and w are measured with messages that are launched one after another and then waited for, as in
// DDP. The simulated cluster gets the same o and w, no latency, and the measured computing time,
// shared among the weights. A step is forward, backward and finish(), and takes the time of the
// slowest rank.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "experiments/step/step.h"
#include "measuring/interleaved.h"

namespace ddp {
namespace {

constexpr const char* kOfBuckets = "bucketed";

// The cost of an all-reduce of n bytes: overhead + n / bandwidth.
struct LinkCosts {
  double overhead = 0;   // o, seconds
  double bandwidth = 0;  // w, bytes per second
};

StepSettings overhead_defaults(const std::string& preset) {
  StepSettings settings;
  settings.variants = {kComputeOnly, kOfBuckets};
  settings.timed = {{"step", Part::kForward, Part::kFinish, /*together=*/true},
                    {"forward", Part::kForward, Part::kForward}};
  settings.part_label = "quantity";
  const bool quick = preset.empty() || preset == "quick";
  settings.workload = {.model = "reduced",
                       .size = {.batch = 2, .steps = quick ? 8 : 100, .warmup = quick ? 3 : 10},
                       .length = 32};
  return settings;
}

void add_overhead_flags(CLI::App& line, StepSettings& settings) {
  Workload& workload = settings.workload;
  add_choice(line, "--model", workload.model, "What is trained", transformer_names());
  add_number(line, "--batch-size", workload.size.batch, "Sequences of each rank");
  add_number(line, "--sequence-length", workload.length, "Tokens of a sequence");
  add_number(line, "--repetitions", workload.size.steps, "How often each variant is measured");
  add_number(line, "--warmup", workload.size.warmup, "Repetitions before them", 0);
  add_number(line, "--caps", settings.caps,
             "How many: all gradients in one bucket, half of them, and so on", 2, 32);
}

TrainedModels models_of_caps(const StepSettings& settings) {
  return {.model = settings.workload.model,
          .of_each_rank = static_cast<std::size_t>(settings.caps) + 1};
}

std::int64_t gradient_bytes(const StepSettings& settings) {
  return std::int64_t{sizeof(float)} * parameter_count(transformer_shape(settings.workload.model));
}

// Computing alone; then caps, each half the next one, up to all gradients in one bucket.
std::vector<Comparison> overhead_rows(const StepSettings& settings,
                                      const std::vector<int>& local_ranks) {
  TORCH_CHECK_VALUE(local_ranks.size() > 1,
                    "one rank has nothing to reduce: start bucket_overhead with 2 ranks or more");
  Comparison row = {.workload = settings.workload,
                    .ways = {{kComputeOnly, settings.trainer, {{"variant", kComputeOnly}}}}};
  for (int halvings = settings.caps - 1; halvings >= 0; --halvings) {
    const std::int64_t cap = std::max(std::int64_t{1}, gradient_bytes(settings) >> halvings);
    Way way = {kOfBuckets, settings.trainer, {{"variant", kOfBuckets}, {"cap_bytes", cap}}};
    way.options.cap_bytes = cap;
    row.ways.push_back(way);
  }
  return {row};
}

Parameters overhead_parameters(const StepSettings& settings, const std::vector<Comparison>&) {
  const Workload& workload = settings.workload;
  return {{"model", workload.model},
          {"parameters", parameter_count(transformer_shape(workload.model))},
          {"gradient_bytes", gradient_bytes(settings)},
          {"batch_size", workload.size.batch},
          {"sequence_length", workload.length},
          {"repetitions", workload.size.steps},
          {"warmup", workload.size.warmup},
          {"rate_gbit", settings.rate_gbit},
          {"latency_us", settings.latency_us}};
}

// The time per message when as many as fit into `largest` bytes, but at most 64, are launched
// together; of the slowest rank.
Series measure_messages_of(std::int64_t bytes, std::int64_t largest, const Repetitions& repetitions,
                           const DeviceContext& ranks) {
  const std::int64_t count = std::clamp<std::int64_t>(largest / bytes, 1, 64);
  std::vector<at::Tensor> messages;
  for (std::int64_t i = 0; i < count; ++i) {
    messages.push_back(at::zeros({bytes / std::int64_t{sizeof(float)}}, at::device(ranks.device)));
  }
  const auto timer = make_device_timer(ranks.device);
  std::vector<WorkPtr> works(messages.size());
  const at::Tensor times =
      measure_interleaved(repetitions, 1, [&](std::size_t) -> std::vector<double> {
        const double seconds = seconds_together(*timer, ranks.group, [&] {
          for (std::size_t i = 0; i < messages.size(); ++i) {
            works[i] = all_reduce_async(messages[i], ranks.group);
          }
          for (const WorkPtr& work : works) {
            work->wait();
          }
        });
        return {seconds / static_cast<double>(count)};
      });
  return series_of(largest_of_ranks(times, ranks), 0, 0,
                   {{"quantity", "message"}, {"bytes", bytes}});
}

// Of 64 bytes, 256 and so on, and of all gradients' bytes. Messages are short: four times as often
// as steps. Collective.
std::vector<Series> measure_messages(const StepSettings& settings, const DeviceContext& ranks) {
  const Size& size = settings.workload.size;
  const Repetitions repetitions = {.measured = 4 * size.steps, .warmup = size.warmup};
  const std::int64_t largest = gradient_bytes(settings);
  std::vector<Series> series;
  for (std::int64_t bytes = 64; bytes < largest; bytes *= 4) {
    series.push_back(measure_messages_of(bytes, largest, repetitions, ranks));
  }
  series.push_back(measure_messages_of(largest, largest, repetitions, ranks));
  return series;
}

// The overhead is the median time of the smallest message, and the additional time of the largest is
// that of its bytes. Throws c10::Error if there is none.
LinkCosts link_costs(const std::vector<Series>& messages) {
  const double overhead = percentile(messages.front().values, 50);
  const double transfer = percentile(messages.back().values, 50) - overhead;
  const std::int64_t bytes = *label_of<std::int64_t>(messages.back(), "bytes");
  TORCH_CHECK(transfer > 0, "an all-reduce of ", bytes,
              " bytes takes no longer than one of a few, so there is no bandwidth to be found; run "
              "it again when the machine is less busy");
  return {.overhead = overhead, .bandwidth = static_cast<double>(bytes) / transfer};
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

// What the simulated cluster says of the same caps on so many ranks: an all-reduce costs its launch
// and the time of its bytes. `measured` begins with computing alone: a step, and its forward.
std::vector<Series> simulate_overheads(const StepSettings& settings, const LinkCosts& link,
                                       const std::vector<Series>& measured, int ranks) {
  const double step = percentile(measured[0].values, 50);
  const double forward = percentile(measured[1].values, 50);
  const double part = 2.0 * (ranks - 1) / ranks;  // of the bytes, as a ring moves
  cluster::ClusterOptions options =
      cluster::bare_network(ranks, {.beta_ns_per_byte = 1e9 / link.bandwidth / part});
  options.collective_launch_ns = std::llround(1e9 * link.overhead);
  cluster::Cluster cluster(options);
  const std::string& name = settings.workload.model;
  const ProfiledModel model(transformer_profile(name, transformer_shape(name), {}));
  cluster::TimedModel timed(cluster, layers_of(model, options.device, forward, step - forward),
                            tensors_of(model.named_parameters()));
  const auto total_ns = [&](const char* variant, std::int64_t cap_bytes) {
    return simulate_step(variant, cluster, timed, {.cap_bytes = cap_bytes}).total_ns;
  };
  std::vector<Series> simulated;
  for (const Series& series : measured) {
    if (const auto cap = label_of<std::int64_t>(series, "cap_bytes")) {
      simulated.push_back(
          exact_time({{"quantity", "simulated overhead"}, {"cap_bytes", *cap}},
                     in_seconds(total_ns(kOfBuckets, *cap) - total_ns(kComputeOnly, 1))));
    }
  }
  return simulated;
}

void add_messages_and_simulation(const StepSettings& settings, const DeviceContext* ranks,
                                 Result& result) {
  std::vector<Series> series = measure_messages(settings, *ranks);
  const LinkCosts link = link_costs(series);
  if (result.series.empty()) {  // of another rank than 0
    return;
  }
  std::erase_if(result.series, [](const Series& one) {  // of computing alone forward is enough
    return label_of<std::int64_t>(one, "cap_bytes") &&
           label_of<std::string>(one, "quantity") == "forward";
  });
  const std::vector<Series> simulated =
      simulate_overheads(settings, link, result.series, ranks->group->getSize());
  std::ranges::move(result.series, std::back_inserter(series));
  std::ranges::copy(simulated, std::back_inserter(series));
  result.series = std::move(series);
  const double best =
      std::sqrt(static_cast<double>(gradient_bytes(settings)) * link.bandwidth * link.overhead);
  result.parameters = joined(result.parameters, {{"overhead_s", link.overhead},
                                                 {"bandwidth_bytes_per_s", link.bandwidth},
                                                 {"best_cap_bytes", best}});
}

}  // namespace

StepExperiment bucket_overhead() {
  return {.name = "bucket_overhead",
          .about =
              "What buckets of each size add to computing, by measurement, formula and "
              "simulation: Stanford CS336, assignment 2",
          .presets = {.quick = "--warmup 3 --repetitions 8",
                      .full = "--warmup 10 --repetitions 100",
                      .paper = "the same on the hardware of the published experiment, 2 GPUs in "
                               "one machine"},
          .defaults = overhead_defaults,
          .add_flags = add_overhead_flags,
          .trained = models_of_caps,
          .rows = overhead_rows,
          .parameters = overhead_parameters,
          .complete = add_messages_and_simulation};
}

}  // namespace ddp
