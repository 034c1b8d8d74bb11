#pragma once

#include <array>
#include <memory>
#include <vector>

#include "ddp/meters/device_timer.h"
#include "experiments/bucketed_ddp/adamw.h"
#include "harness/benchmark.h"
#include "harness/trainer.h"

namespace ddp {

/// The timed parts of an iteration: the whole of it, backward, and finish().
inline constexpr std::array kIterationParts = {"train", "backward", "all-reduce"};

/// Times iterations of training with AdamW: forward, loss, backward, finish(), optimizer. All ranks
/// begin each together. On a GPU, finish() begins when the computation of backward has ended there,
/// so that its time is what overlap could not hide.
class TimedIteration {
 public:
  explicit TimedIteration(const DeviceContext& device_context);

  /// Collective. Seconds of each of kIterationParts.
  std::vector<double> run(Trainer& trainer, AdamW& optimizer, const LabelledBatch& batch);

 private:
  ProcessGroupPtr group_;
  std::unique_ptr<DeviceTimer> train_, backward_, finish_;
};

}  // namespace ddp
