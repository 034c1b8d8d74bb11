#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/meters/device_timer.h"
#include "experiments/ddp_suite/momentum_sgd.h"
#include "experiments/ddp_suite/settings.h"
#include "experiments/ddp_suite/suite_round.h"
#include "harness/trainer.h"

namespace ddp {

/// The suite's optimizer.
constexpr MomentumSgdOptions kSuiteSgd = {
    .learning_rate = 0.001, .momentum = 0.9, .weight_decay = 1e-4};

/// The candidates that are interleaved in a round, each on its own replica of one model: computing
/// alone, or stage 03 and c10d::Reducer with each bucket size.
class SuiteComparison {
 public:
  /// Collective in the round's group, that of `device_context`, which must outlive it. Throws
  /// c10::Error if the model does not have the published number of parameters.
  SuiteComparison(const SuiteSettings& settings, const SuiteModel& model, const SuiteRound& round,
                  const DeviceContext& device_context);

  /// How many replicas take part in a round with or without DDP.
  static int replicas(const SuiteSettings& settings, const SuiteRound& round);

  /// One iteration of a round with DDP. Throws c10::Error if stage 03's gradients differ from its
  /// peer's: then it is not worth measuring. Collective.
  void check();

  /// Seconds of one iteration of one replica, begun by all ranks of the round together: forward,
  /// backward, finish() and the optimizer, which sets gradients to none.
  double run(std::size_t replica);

  /// A series for each replica, of `seconds`: [ranks, iterations, replicas, 1].
  std::vector<Series> to_series(const at::Tensor& seconds) const;

 private:
  void add(const std::string& variant, std::optional<std::int64_t> bucket_size);
  void check_size(const Trainer& trainer) const;

  const SuiteModel model_;
  const std::uint64_t seed_;
  const DeviceContext& device_context_;
  std::unique_ptr<DeviceTimer> timer_;
  LabelledBatch batch_;
  std::vector<std::string> variants_;
  std::vector<Trainer> trainers_;
  std::vector<MomentumSgd> optimizers_;
  std::vector<Parameters> labels_;
};

}  // namespace ddp
