#include "harness/interleaved.h"

#include <ATen/ATen.h>
#include <malloc.h>

#include <utility>

#include "harness/command_line.h"

namespace ddp {

void add_flags(CLI::App& line, Repetitions& repetitions) {
  line.add_option("--repetitions", repetitions.measured,
                  "How often each variant is measured; default: the preset's")
      ->check(CLI::Range(1, 1 << 20));
  line.add_option("--warmup", repetitions.warmup, "Repetitions before them; default: the preset's")
      ->check(CLI::Range(0, 1 << 20));
}

void apply_preset(Repetitions& repetitions, const Repetitions& preset) {
  for (int Repetitions::*field : {&Repetitions::measured, &Repetitions::warmup}) {
    if (repetitions.*field < 0) {
      repetitions.*field = preset.*field;
    }
  }
}

at::Tensor measure_interleaved(const Repetitions& repetitions, std::size_t variants,
                               const MeasureOnce& measure, std::optional<Progress>& progress) {
  const int all = repetitions.warmup + repetitions.measured;
  std::vector<double> values;  // [repetition][variant][part], without the warm-up
  std::vector<std::vector<double>> repetition(variants);
  for (int number = 0; number < all; ++number) {
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

void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never
}

}  // namespace ddp
