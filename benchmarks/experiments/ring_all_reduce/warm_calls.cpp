#include <ATen/ATen.h>

#include <fstream>

#include "ddp/meters/device_timer.h"
#include "experiments/ring_all_reduce/ring_all_reduce.h"
#include "harness/memory.h"
#include "harness/resumable_rows.h"

namespace ddp {
namespace {

constexpr std::array kQuantitiesOfCall = {Quantity{"time", "s"}, Quantity{"maxrss", "KiB"},
                                          Quantity{"allocated", "bytes"}, Quantity{"diff", "1"}};

// Resets the peak memory of the process to its present memory. Only Linux can do that, and not in
// every container; elsewhere the peak covers the whole run.
void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

// kQuantitiesOfCall of one call, except its tensor memory, which is that of a second call.
std::vector<double> measure_call(const AllReduce& variant, const at::Tensor& input,
                                 DeviceTimer& timer, const DeviceContext& device_context) {
  const at::Tensor tensor = input.clone();
  forget_peak_memory();
  const double seconds = seconds_together(timer, device_context.group, [&] {
    variant.run(tensor, device_context.group, ReduceOp::kAverage);
  });
  const double kib = peak_memory_kib();
  const at::Tensor mean = input.to(at::kDouble);
  all_reduce(mean, device_context.group, ReduceOp::kAverage);
  const double diff = (tensor - mean).square().sum().item<double>();
  const std::int64_t allocated = peak_bytes(
      device_context.device, [&] { variant.run(input, device_context.group, ReduceOp::kAverage); });
  return {seconds, kib, static_cast<double>(allocated), diff};
}

// Both variants' kQuantitiesOfCall.
std::vector<Series> measure_pair(const RingOptions& settings, const Pair& pair,
                                 const DeviceContext& device_context, Progress& progress) {
  const auto [ring, peer] = pair.variants();
  const auto variants =
      usable_all_reduces({ring, peer}, device_context.device, device_context.group);
  const auto timer = make_device_timer(device_context.device);
  const int ranks = device_context.group->getSize(), rank = device_context.group->getRank();
  int calls = 0;
  const at::Tensor own = measure_interleaved(
      settings.repetitions, variants.size(),
      [&](std::size_t variant) {
        const int repetition = calls++ / static_cast<int>(variants.size());
        const at::Tensor input =
            draw_input(pair, settings.seed + repetition * ranks + rank, device_context.device);
        return measure_call(variants[variant], input, *timer, device_context);
      },
      &progress);
  const at::Tensor values = largest_of_ranks(own, device_context);
  std::vector<Series> series;
  for (std::size_t variant = 0; variant < variants.size(); ++variant) {
    for (std::size_t quantity = 0; quantity < kQuantitiesOfCall.size(); ++quantity) {
      const auto [name, unit] = kQuantitiesOfCall[quantity];
      series.push_back(series_of(values, variant, quantity,
                                 {{"variant", variants[variant].name}, {"quantity", name}}));
      series.back().unit = unit;
    }
  }
  return series;
}

void measure_world(const RankContext& context, const RingOptions& settings,
                   const DeviceContext& device_context, ResumableRows& rows) {
  const std::vector<Pair> pairs = pairs_of(context.world_size);
  const int repetitions = settings.repetitions.all();
  Progress progress(
      "ring_all_reduce, repetitions of " + std::to_string(context.world_size) + " ranks",
      static_cast<int>(pairs.size()) * repetitions, context.rank);
  for (const Pair& pair : pairs) {
    if (!rows.has(pair.labels())) {
      rows.add(pair.labels(), measure_pair(settings, pair, device_context, progress));
    } else {
      progress.skip(repetitions);
    }
  }
}

void run_world(const RankContext& context, const RingOptions& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  ResumableRows rows(settings, header(settings, device_context.group), device_context);
  measure_world(context, settings, device_context, rows);
  if (context.world_size == settings.worlds.back()) {
    const Result result = rows.finish();
    if (context.rank == 0) {
      print_table(result, kQuantitiesOfCall);
    }
  }
  save_trace(settings, context, device_context);
}

}  // namespace

int measure_warm_calls(const RingOptions& settings) {
  return run_benchmark_in_worlds(settings, settings.worlds, kRingStage, run_world);
}

}  // namespace ddp
