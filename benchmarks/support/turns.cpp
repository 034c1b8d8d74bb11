#include "support/turns.h"

#include <ATen/ATen.h>
#include <malloc.h>

#include <utility>

namespace ddp {

void add_flags(CLI::App& app, Rounds& rounds) {
  app.add_option("--rounds", rounds.measured,
                 "How often each variant is measured; default: the preset's")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--warmup", rounds.warmup, "Rounds before them; default: the preset's")
      ->check(CLI::Range(0, 1 << 20));
}

void apply_preset(Rounds& rounds, const Rounds& preset) {
  for (int Rounds::*field : {&Rounds::measured, &Rounds::warmup}) {
    if (rounds.*field < 0) {
      rounds.*field = preset.*field;
    }
  }
}

at::Tensor take_turns(const Rounds& rounds, std::size_t variants, const MeasureTurn& measure,
                      std::optional<Progress>& progress) {
  const int all = rounds.warmup + rounds.measured;
  std::vector<double> values;  // of the measured rounds, in each from the first variant to the last
  std::vector<std::vector<double>> round(variants);
  for (int number = 0; number < all; ++number) {
    for (std::size_t turn = 0; turn < variants; ++turn) {
      const std::size_t next = (number + turn) % variants;
      round[next] = measure(next);
    }
    for (const std::vector<double>& parts : round) {
      if (number >= rounds.warmup) {
        values.insert(values.end(), parts.begin(), parts.end());
      }
    }
    if (progress) {
      progress->advance();
    }
  }
  return at::tensor(values, at::kDouble)
      .view({rounds.measured, static_cast<std::int64_t>(variants), -1});
}

at::Tensor largest_of_ranks(const at::Tensor& values, const Workplace& workplace) {
  const at::Tensor largest = values.to(workplace.device, /*non_blocking=*/false, /*copy=*/true);
  all_reduce(largest, workplace.group, ReduceOp::kMax);
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
