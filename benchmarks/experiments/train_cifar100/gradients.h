#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/model.h"
#include "harness/benchmark.h"

namespace ddp {

// Data-parallel training as train_cifar100 compares it.

/// The lab's own: a stage of 01 to 03, and stage 04's batch normalization.
constexpr const char* kSelfmade = "selfmade";
/// PyTorch's: c10d::Reducer, and the port of torch.nn.SyncBatchNorm.
constexpr const char* kPytorch = "pytorch";
/// What both must come to, done as plainly as can be: after backward each gradient is averaged by
/// itself. With PyTorch's batch normalization.
constexpr const char* kPlain = "plain";

/// Which of support/batch_norms.h an implementation trains with.
std::string batch_norm_of(const std::string& distributed_impl);

/// Turns the gradients of several micro-batches into one average over ranks. Gradients add up from
/// call to call until someone drops them.
class GradientAverager {
 public:
  /// Forward: returns the loss of a micro-batch.
  using Loss = std::function<at::Tensor()>;

  GradientAverager() = default;
  GradientAverager(const GradientAverager&) = delete;
  GradientAverager& operator=(const GradientAverager&) = delete;
  virtual ~GradientAverager() = default;

  /// Forward and backward of a micro-batch that others follow: gradients stay this rank's own.
  virtual void accumulate(const Loss& loss) = 0;

  /// Those of the last one: when it returns, gradients are averages over the ranks of what has
  /// added up. Collective.
  virtual void accumulate_and_average(const Loss& loss) = 0;
};

/// Collective: broadcasts rank 0's parameters and buffers. `ddp` is the way of averaging of
/// kSelfmade: "naive", "flat", "overlapped" or "bucketed", whose stage must be loaded. Throws
/// c10::ValueError for unknown names.
std::unique_ptr<GradientAverager> make_gradient_averager(const std::string& distributed_impl,
                                                         const std::string& ddp, const Model& model,
                                                         const ProcessGroupPtr& group);

}  // namespace ddp
