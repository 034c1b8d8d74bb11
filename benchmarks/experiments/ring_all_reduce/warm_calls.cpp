#include "experiments/ring_all_reduce/warm_calls.h"

#include <ATen/ATen.h>

#include <fstream>

#include "ddp/meters/device_timer.h"
#include "harness/peak_memory.h"
#include "harness/worlds.h"

namespace ddp {
namespace {

constexpr std::array kQuantitiesOfCall = {Quantity{"time", "s"}, Quantity{"maxrss", "KiB"},
                                          Quantity{"allocated", "bytes"}, Quantity{"diff", "1"}};

// Resets the peak memory of the process to its present memory. Only Linux can do that, and not in
// every container; elsewhere the peak covers the whole run.
void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

// One rank's measurements of one pair.
class Measurement {
 public:
  Measurement(const RingOptions& settings, const Pair& pair, const DeviceContext& device_context)
      : settings_(settings), pair_(pair), device_context_(device_context) {}

  // kQuantitiesOfCall of one call, except its tensor memory, which is that of a second call.
  std::vector<double> measure(const AllReduce& variant, int repetition) {
    const at::Tensor input = make_input(repetition);
    const at::Tensor tensor = input.clone();
    forget_peak_memory();
    barrier(device_context_.group);
    timer_->start();
    variant.run(tensor, device_context_.group, ReduceOp::kAverage);
    timer_->stop();
    const double seconds = timer_->seconds();
    const double kib = peak_memory_kib();
    const at::Tensor mean = input.to(at::kDouble);
    all_reduce(mean, device_context_.group, ReduceOp::kAverage);
    const double diff = (tensor - mean).square().sum().item<double>();
    const std::int64_t allocated = peak_bytes(device_context_.device, [&] {
      variant.run(input, device_context_.group, ReduceOp::kAverage);
    });
    return {seconds, kib, static_cast<double>(allocated), diff};
  }

 private:
  at::Tensor make_input(int repetition) const {
    const c10d::ProcessGroup& group = *device_context_.group;
    const int number = repetition * group.getSize() + group.getRank();
    return draw_input(pair_, settings_.seed + number, device_context_.device);
  }

  const RingOptions& settings_;
  const Pair& pair_;
  const DeviceContext& device_context_;
  std::unique_ptr<DeviceTimer> timer_ = make_device_timer(device_context_.device);
};

// Both variants' kQuantitiesOfCall.
std::vector<Series> measure_pair(const RingOptions& settings, const Pair& pair,
                                 const DeviceContext& device_context,
                                 std::optional<Progress>& progress) {
  const auto [ring, peer] = pair.variants();
  const auto variants =
      usable_all_reduces({ring, peer}, device_context.device, device_context.group);
  Measurement measurement(settings, pair, device_context);
  int calls = 0;
  const at::Tensor own = measure_interleaved(
      settings.repetitions, variants.size(),
      [&](std::size_t variant) {
        return measurement.measure(variants[variant], calls++ / static_cast<int>(variants.size()));
      },
      progress);
  const at::Tensor values = largest_of_ranks(own, device_context);
  std::vector<Series> series;
  series.reserve(variants.size() * kQuantitiesOfCall.size());
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
  const int repetitions = settings.repetitions.warmup + settings.repetitions.measured;
  std::optional<Progress> progress;
  if (context.rank == 0) {
    progress.emplace(
        "ring_all_reduce, repetitions of " + std::to_string(context.world_size) + " ranks",
        static_cast<int>(pairs.size()) * repetitions);
  }
  for (const Pair& pair : pairs) {
    if (!rows.has(pair.labels())) {
      rows.add(pair.labels(), measure_pair(settings, pair, device_context, progress));
    } else if (progress) {
      progress->skip(repetitions);
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
