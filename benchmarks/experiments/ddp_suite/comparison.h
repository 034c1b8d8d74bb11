#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/meters/device_timer.h"
#include "ddp/model.h"
#include "experiments/ddp_suite/suite.h"
#include "harness/trainer.h"

namespace ddp {

/// The suite's optimizer.
constexpr struct {
  double learning_rate, momentum, weight_decay;
} kSuiteSgd = {.learning_rate = 0.001, .momentum = 0.9, .weight_decay = 1e-4};

/// Stochastic gradient descent with momentum as in PyTorch's torch.optim.SGD(fused=True), by the
/// same function of libtorch: one pass over parameters, gradients and momentum.
class MomentumSgd {
 public:
  explicit MomentumSgd(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {}

  /// Updates the parameters with their gradients, which must all exist, and sets those to none.
  void step();

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> momentum_;  // empty before the first step
};

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
