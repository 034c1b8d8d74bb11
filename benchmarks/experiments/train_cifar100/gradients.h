#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/model.h"
#include "harness/benchmark.h"

namespace ddp {

// The data-parallel training methods that train_cifar100 compares.

/// The lab's own: a stage of 01 to 03, and stage 04's batch normalization.
constexpr const char* kSelfmade = "selfmade";
/// PyTorch's: c10d::Reducer, and the port of torch.nn.SyncBatchNorm.
constexpr const char* kPytorch = "pytorch";
/// The reference for both, as simple as possible: after backward each gradient is averaged by
/// itself. With PyTorch's batch normalization.
constexpr const char* kPlain = "plain";

/// Which batch normalization of peers/batch_norms.h an implementation trains with.
std::string batch_norm_of(const std::string& distributed_impl);

/// Turns the gradients of several micro-batches into one average over ranks. Gradients accumulate
/// from call to call until they are dropped.
class GradientAverager {
 public:
  /// Forward: returns the loss of a micro-batch.
  using Loss = std::function<at::Tensor()>;

  GradientAverager() = default;
  GradientAverager(const GradientAverager&) = delete;
  GradientAverager& operator=(const GradientAverager&) = delete;
  virtual ~GradientAverager() = default;

  /// Forward and backward of any micro-batch but a step's last: gradients may stay local to this
  /// rank. Collective.
  virtual void accumulate(const Loss& loss) = 0;

  /// Forward and backward of the last one: when it returns, gradients are the averages over the
  /// ranks of the accumulated ones. Collective.
  virtual void accumulate_and_average(const Loss& loss) = 0;
};

/// Collective: broadcasts rank 0's parameters and buffers. `ddp` is kSelfmade's averaging method:
/// "naive", "flat", "overlapped" or "bucketed", whose stage must be loaded. Throws c10::ValueError
/// for unknown names.
std::unique_ptr<GradientAverager> make_gradient_averager(const std::string& distributed_impl,
                                                         const std::string& ddp, const Model& model,
                                                         const ProcessGroupPtr& group);

}  // namespace ddp
