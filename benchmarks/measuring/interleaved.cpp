#include "measuring/interleaved.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "ddp/meters/memory_meter.h"
#include "measuring/command_line.h"

namespace ddp {

Progress::Progress(std::string what, int total, int rank)
    : what_(std::move(what)),
      total_(total),
      shown_(rank == 0),
      terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::advance() {
  ++done_;
  const double now = watch_.seconds();
  const double pause = terminal_ ? 0.2 : 10;
  if (!shown_ || now - last_shown_ < pause) {
    return;
  }
  last_shown_ = now;
  clear_line();
  std::fprintf(stderr, "%s: %d of %d, %.0f s left%s", what_.c_str(), skipped_ + done_, total_,
               now / done_ * (total_ - skipped_ - done_), terminal_ ? "" : "\n");
  std::fflush(stderr);
}

void Progress::clear_line() const {
  if (shown_ && terminal_) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
}

void add_flags(CLI::App& line, Repetitions& repetitions) {
  add_number(line, "--repetitions", repetitions.measured, "How often each variant is measured");
  add_number(line, "--warmup", repetitions.warmup, "Repetitions before them", 0);
}

at::Tensor measure_interleaved(const Repetitions& repetitions, std::size_t variants,
                               const MeasureOnce& measure, Progress* progress) {
  std::vector<double> values;  // [repetition][variant][part], without the warm-up
  std::vector<std::vector<double>> repetition(variants);
  for (int number = 0; number < repetitions.all(); ++number) {
    for (std::size_t turn = 0; turn < variants; ++turn) {
      const std::size_t next = (number + turn) % variants;
      repetition[next] = measure(next);
    }
    for (const std::vector<double>& parts : repetition) {
      if (number >= repetitions.warmup) {
        values.insert(values.end(), parts.begin(), parts.end());
      }
    }
    if (progress) {
      progress->advance();
    }
  }
  return at::tensor(values, at::kDouble)
      .view({repetitions.measured, static_cast<std::int64_t>(variants), -1});
}

double seconds_together(DeviceTimer& timer, const ProcessGroupPtr& group,
                        const std::function<void()>& part) {
  barrier(group);
  timer.start();
  part();
  timer.stop();
  return timer.seconds();
}

at::Tensor largest_of_ranks(const at::Tensor& values, const DeviceContext& device_context) {
  const at::Tensor largest =
      values.to(device_context.device, /*non_blocking=*/false, /*copy=*/true);
  all_reduce(largest, device_context.group, ReduceOp::kMax);
  return largest.cpu();
}

Series series_of(const at::Tensor& times, std::size_t variant, std::size_t part,
                 Parameters labels) {
  const at::Tensor values = times.select(1, static_cast<std::int64_t>(variant))
                                .select(1, static_cast<std::int64_t>(part))
                                .contiguous();
  return {.labels = std::move(labels),
          .unit = "s",
          .values = {values.const_data_ptr<double>(),
                     values.const_data_ptr<double>() + values.numel()}};
}

std::int64_t peak_bytes(const at::Device& device, const std::function<void()>& body) {
  if (device.is_cpu()) {
    const MemoryMeter meter;
    body();
    return meter.peak_bytes();
  }
  c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(device.type());
  const auto bytes = [&] {
    using c10::CachingAllocator::StatType;
    const auto all = static_cast<std::size_t>(StatType::AGGREGATE);
    return allocator.getDeviceStats(device.index()).allocated_bytes[all];
  };
  allocator.resetPeakStats(device.index());
  const std::int64_t before = bytes().current;
  body();
  return bytes().peak - before;
}

void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never
}

}  // namespace ddp
