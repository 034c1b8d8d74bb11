#include "support/rounds.h"

#include <optional>

namespace ddp {

at::Tensor measure_rounds(const std::string& title, const Size& size, const Workplace& workplace,
                          std::vector<Trainer>& trainers, const MeasureStep& measure) {
  keep_freed_memory();
  std::optional<Progress> progress;
  if (workplace.group->getRank() == 0) {
    progress.emplace(title + ", rounds", size.warmup + size.steps);
  }
  const at::Tensor times = take_turns(
      {.measured = size.steps, .warmup = size.warmup}, trainers.size(),
      [&](std::size_t variant) { return measure(trainers[variant]); }, progress);
  return largest_of_ranks(times, workplace);
}

}  // namespace ddp
