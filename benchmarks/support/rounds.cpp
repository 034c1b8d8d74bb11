#include "support/rounds.h"

#include <ATen/ATen.h>
#include <malloc.h>

#include <optional>
#include <utility>

#include "ddp/progress.h"

namespace ddp {
namespace {

// Large blocks that are freed go back to the system, and come from it page by page the next time,
// or they stay on the heap: that depends on what happens to lie above them, often on another
// trainer. The difference is up to a third of a step, so freed memory stays here, as it does with
// the allocators for GPUs.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never
}

}  // namespace

at::Tensor measure_rounds(const std::string& title, const Size& size, const Workplace& workplace,
                          std::vector<Trainer>& trainers, const MeasureStep& measure) {
  keep_freed_memory();
  const int rounds = size.warmup + size.steps;
  std::optional<Progress> progress;
  if (workplace.group->getRank() == 0) {
    progress.emplace(title + ", rounds", rounds);
  }
  std::vector<at::Tensor> times(trainers.size() * rounds);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < trainers.size(); ++turn) {
      const std::size_t next = (round + turn) % trainers.size();
      times[round * trainers.size() + next] = at::tensor(measure(trainers[next]), at::kDouble);
    }
    if (progress) {
      progress->advance();
    }
  }
  const auto variants = static_cast<std::int64_t>(trainers.size());
  const at::Tensor measured =
      at::stack(times).view({rounds, variants, -1}).slice(/*dim=*/0, size.warmup);
  const at::Tensor slowest = measured.contiguous().to(workplace.device);
  all_reduce(slowest, workplace.group, ReduceOp::kMax);
  return slowest.cpu();
}

Series series_of(const at::Tensor& times, std::size_t trainer, std::size_t part,
                 Parameters labels) {
  const at::Tensor values = times.select(1, static_cast<std::int64_t>(trainer))
                                .select(1, static_cast<std::int64_t>(part))
                                .contiguous();
  return {.labels = std::move(labels),
          .unit = "s",
          .values = {values.const_data_ptr<double>(),
                     values.const_data_ptr<double>() + values.numel()}};
}

}  // namespace ddp
