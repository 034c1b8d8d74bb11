#include <ATen/ATen.h>

#include <algorithm>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "experiments/bucket_overhead/bucket_overhead.h"

namespace ddp {
namespace {

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

}  // namespace

std::vector<Series> measure_messages(std::int64_t largest, const Repetitions& repetitions,
                                     const DeviceContext& device_context) {
  std::vector<Series> series;
  for (std::int64_t bytes = kSmallest; bytes < largest; bytes *= 4) {
    series.push_back(measure_size(bytes, largest, repetitions, device_context));
  }
  series.push_back(measure_size(largest, largest, repetitions, device_context));
  return series;
}

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

}  // namespace ddp
