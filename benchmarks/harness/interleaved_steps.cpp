#include "harness/interleaved_steps.h"

#include <optional>

namespace ddp {

at::Tensor measure_steps(const std::string& title, const Size& size,
                         const DeviceContext& device_context, std::vector<Trainer>& trainers,
                         const MeasureStep& measure) {
  keep_freed_memory();
  std::optional<Progress> progress;
  if (device_context.group->getRank() == 0) {
    progress.emplace(title + ", repetitions", size.warmup + size.steps);
  }
  const at::Tensor times = measure_interleaved(
      {.measured = size.steps, .warmup = size.warmup}, trainers.size(),
      [&](std::size_t variant) { return measure(trainers[variant]); }, progress);
  return largest_of_ranks(times, device_context);
}

}  // namespace ddp
