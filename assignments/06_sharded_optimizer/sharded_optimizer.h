#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ddp/collectives.h"
#include "ddp/gradient_synchronizer.h"

namespace torch::optim {
class Optimizer;
}

namespace ddp {

// Stage 06: sharded optimizer. Handout: assignments/06_sharded_optimizer/README.md.
//
// Of each of stage 03's buckets a rank keeps its N-th: parameters, gradient, optimizer state.

/// Makes the optimizer of one shard, such as a torch::optim::AdamW of `parameters`, a list of one
/// tensor.
using OptimizerFactory =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> parameters)>;

struct ShardedOptimizerOptions {
  /// The cap of plan_buckets(); > 0. The default is PyTorch's 25 MiB.
  std::int64_t cap_bytes = std::int64_t{25} << 20;
  /// False: the same operations in the same order, but none before step() or clip_grad_norm(), and
  /// each is waited for before anything else happens.
  bool overlap = true;
};

/// A training step of one rank:
///
///     loss = mean loss over this rank's shard of the batch
///     loss.backward();
///     optimizer->clip_grad_norm(1.0);   // if wanted
///     optimizer->step();                // parameters are new on all ranks, gradients are gone
///
/// NoSync (ddp/gradient_synchronizer.h) accumulates: inside its scope hooks launch nothing, and
/// gradients add up in parameter.grad(). Autograd's mode, default dtype and the like are left as
/// found.
class ShardedOptimizer : public Silenceable {
 public:
  ShardedOptimizer() = default;
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;
  virtual ~ShardedOptimizer() = default;

  /// Updates the parameters. Collective.
  ///
  /// Reduces what backward has not: the remaining buckets are launched in plan order, with zeros
  /// for undefined gradients, before any is waited for. Then, bucket by bucket in plan order, once
  /// its mean or all are here, the inner optimizer steps on the shard, and the all-gather of the
  /// shards starts, which the next bucket's optimizer does not wait for. When step() returns, all
  /// parameters are new, in their own storage, with the same bits on all ranks, and every trainable
  /// parameter's gradient is undefined.
  ///
  /// Each step() reduces and gathers every bucket exactly once, since no rank can know what is
  /// ready on the others; a single rank need not communicate, here and elsewhere. The inner
  /// optimizers step on whole shards: to them an undefined gradient is zero.
  virtual void step() = 0;

  /// Scales the gradients by max_norm / (norm + 1e-6) if below 1, and returns norm: the
  /// Euclidean norm of the mean gradients of all parameters together, before scaling. Collective;
  /// once, between backward and step(), where its effect shows. Reduces what backward has not, so
  /// step() need not; besides it makes at most one all-reduce, of one float64 number.
  ///
  /// Throws c10::Error, before any communication, unless max_norm > 0.
  virtual double clip_grad_norm(double max_norm) = 0;
};

/// Construction is collective. It broadcasts rank 0's parameters and buffers, bit for bit.
///
/// A bucket's parameters lie flat, one after the other in the order of plan_buckets()
/// (ddp/plans/bucket_plan.h), each in row-major order, then zeros up to a multiple of N, the world
/// size. The rank with number r in the group owns chunk r of N equal ones: its shard, a flat leaf
/// tensor of the bucket's dtype and device that requires a gradient. `make_optimizer` is called
/// once for each bucket that has elements, in plan order, before any communication; a shard's
/// values are there when construction returns. The caller may change an optimizer's learning rate
/// between steps.
///
/// A bucket's reduce-scatter starts as in stage 03 its all-reduce: when all its gradients are ready
/// (on_gradient_ready, ddp/gradient_hooks.h) and the reduce-scatter of the bucket before it has
/// started; when the hook of the gradient that it waited for returns, it has. Its input is the
/// padded bucket, its result the mean over the ranks, added in any order. A bucket without elements
/// may be waited for, or not. Nothing waits inside backward. Ranks may take different branches.
/// Whatever a gradient holds counts, even if the last backward did not touch it. It is let go
/// (parameter.grad() becomes undefined) at the latest when its bucket starts, and is not the
/// caller's from backward to step().
///
/// Between steps a rank holds, beside the parameters, for each bucket: its shard, at most one
/// gradient of its size, and what the inner optimizer keeps. Nothing grows from step to step. In backward
/// and step() all other tensors, gradients included, take no more bytes than all padded buckets and
/// twice the largest: finished flat gradients are gone before gathered parameters take their place.
///
/// At most one backward outside NoSync may run between two calls of step(), and none between
/// clip_grad_norm() and step(): else the hook throws c10::Error, and so backward(). (One for other
/// gradients alone, or inside NoSync, need not be noticed, nor any where overlap = false.)
///
/// What the caller writes into a parameter after construction is lost in the next step(): the
/// shards count.
///
/// Throws c10::Error, before any communication, if the group is null, cap_bytes <= 0, the list of
/// parameters empty, a parameter or buffer undefined, a trainable parameter no leaf (these messages
/// name the index), the factory empty, or what it returns null. Later: in a NoSync scope step() and
/// clip_grad_norm() throw; so does whatever reduces a sparse gradient, or that of a parameter whose
/// dtype or device is no longer its bucket's, naming the index; and who waits for what fails.
///
/// Destruction removes the hooks and launches nothing; what is under way may be left so.
std::unique_ptr<ShardedOptimizer> make_sharded_optimizer(
    std::vector<at::Tensor> parameters, std::vector<at::Tensor> buffers, ProcessGroupPtr group,
    OptimizerFactory make_optimizer, const ShardedOptimizerOptions& options = {});

}  // namespace ddp
