#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "ddp/collectives.h"
#include "ddp/gradient_synchronizer.h"
#include "ddp/saved_shards.h"

namespace ddp {

// Stage 07: fully sharded. Handout: assignments/07_fully_sharded/README.md.
//
// A rank keeps of each unit's parameters its N-th, and has them whole only while the unit computes.

/// Computes a unit's output from its input and its parameters, in the order given.
using UnitFunction =
    std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& parameters)>;

/// Parameters and the function that uses them.
struct Unit {
  std::vector<at::Tensor> parameters;
  UnitFunction function;
};

struct FullyShardedOptions {
  /// How many units are gathered ahead (k); >= 0.
  int prefetch = 1;
  /// True: a forward whose result requires a gradient keeps the last unit of the list whole until
  /// backward, unless another unit's forward or backward comes first and lets it go.
  bool keep_last = false;
};

/// A training step of one rank:
///
///     x = model->forward(0, x);  x = model->forward(1, x);  ...
///     loss(x).backward();
///     model->finish();                 // now every shard's gradient is the mean over the ranks
///     model->clip_grad_norm(1.0);      // if wanted
///     optimizer.step();                // any optimizer, over model->shards()
///     optimizer.zero_grad();
///
/// A unit is *whole* from the launch of its all-gather until it is let go, and takes no memory when
/// it is not. At most 1 + prefetch units are whole at any time, and none between steps.
///
/// All ranks call forward() and backward for the same units in the same order. A unit may be used
/// several times or never, in any order, without autograd (no-grad mode), or with a result that
/// requires no gradient. Its function calls no forward(), returns a new tensor, and keeps no
/// parameter. A checkpoint may call forward() in backward, which gathers as ever. A graph has one
/// backward, which ends training if it throws.
///
/// NoSync (ddp/gradient_synchronizer.h) accumulates: a backward inside its scope, wherever its
/// forward was, reduces nothing, and whole gradients stay on every rank, for the unit's next
/// reduction to take along; units are gathered and let go as ever.
///
/// Autograd's mode, default dtype and the like are left as found.
class FullySharded : public Silenceable {
 public:
  FullySharded() = default;
  FullySharded(const FullySharded&) = delete;
  FullySharded& operator=(const FullySharded&) = delete;
  virtual ~FullySharded() = default;

  /// Calls the unit's function, once, and returns its result for x, or an alias. Collective.
  ///
  /// Lets go of all units but this one and the `prefetch` units after it in the list, starts the
  /// all-gathers of those that are not whole, in the list's order, and then waits for this unit's
  /// alone. When the function has returned or thrown, the unit is let go, unless it has returned
  /// and is kept (FullyShardedOptions::keep_last).
  ///
  /// A use is *open* from its recorded forward until its backward begins, or finish(). Right before
  /// its backward the same happens for this unit, then those of the `prefetch` latest open uses
  /// before this one. Where units repeat or passes interleave, others may be gathered in vain.
  ///
  /// A unit's gradient is complete when all its uses in a backward have added to it: then the unit
  /// is let go and, before any other launch, its reduce-scatter starts. One is under way at most:
  /// it is waited for right before the next one starts, or in finish(). A gather under way is
  /// waited for before its unit is let go.
  ///
  /// Throws c10::Error, before any communication, if there is no such unit or x is undefined.
  virtual at::Tensor forward(std::size_t unit, const at::Tensor& x) = 0;

  /// Ends a step's backward, or several; collective. Reduces the gradients that NoSync has left, in
  /// reverse order of the list, waits for what is under way, and lets go of all units. Then each
  /// shard's gradient has grown by the mean over the ranks of its unit's gradients since the last
  /// finish(); until then nobody else touches it. A unit that no backward has reached stays as it
  /// is: no gradient, if it had none.
  ///
  /// Throws c10::Error inside a NoSync scope.
  virtual void finish() = 0;

  /// This rank's shards, one for each unit: the same tensors each time. Write to them only after
  /// finish(), which evaluation needs, too: a unit that was gathered ahead has the old values.
  virtual const std::vector<at::Tensor>& shards() const = 0;

  /// Scales the shards' gradients by max_norm / (norm + 1e-6) if below 1, and returns
  /// norm: the Euclidean norm, in float64, of all units' gradients together, before scaling.
  /// Collective, between finish() and the optimizer's step; makes one all-reduce of one number.
  ///
  /// Throws c10::Error, before any communication, unless max_norm > 0.
  virtual double clip_grad_norm(double max_norm) = 0;

  /// All units' parameters, one unit after the other, whole, in the shapes given, without autograd:
  /// copies on rank `root` of the group, nothing on the others. Collective, between steps: one
  /// all-gather for each unit, in the list's order, and one unit is whole at a time.
  ///
  /// Throws c10::Error, before any communication, if there is no rank `root`.
  virtual std::vector<at::Tensor> whole_parameters(int root = 0) = 0;

  /// Sets all parameters to such a list, which each rank is given. Communicates nothing; between
  /// steps.
  ///
  /// Throws c10::Error, and changes nothing, if it is another model's: of other length, or with a
  /// tensor that is undefined, of another shape or dtype (the message names that tensor's index).
  virtual void load_whole(const std::vector<at::Tensor>& parameters) = 0;

  /// Copies of this rank's shards. Communicates nothing; between steps.
  virtual SavedShards save() const = 0;

  /// Sets all parameters to what the ranks of a group of any size have saved: `saved` has what each
  /// of them saved, in any order. Bit for bit; communicates nothing; between steps.
  ///
  /// Throws c10::Error, and changes nothing, if the states are not one of each rank of a group, or
  /// are another model's (in_order_of_ranks(), ddp/saved_shards.h, checks that).
  virtual void load(const std::vector<SavedShards>& saved) = 0;
};

/// Construction is collective. Every unit's values become rank 0's, bit for bit; of the given
/// tensors, which are only read, none is kept.
///
/// A unit's parameters lie flat (FlatLayout, ddp/flat_layout.h): one after the other in the order
/// of the list, each in row-major order, one that is listed twice in a unit (tied) only at its
/// first place; then zeros up to a multiple of N, the world size. The rank with number r in the
/// group owns chunk r of N equal ones: its shard, a flat leaf tensor of the unit's dtype and device
/// that requires a gradient. A gather carries shards, a reduce-scatter the padded flat gradient,
/// and its result is the mean over the ranks. A single rank need not communicate.
///
/// Between steps a rank holds for each unit its shard, and the gradient of it that the caller has
/// not cleared; nothing grows from step to step. Within a step the model's other tensors take no
/// more than 1 + prefetch units, and in backward four units' bytes and a shard's more. (NoSync adds
/// all units' bytes, construction and whole_parameters() two units beside shards and results.)
///
/// Throws c10::Error, before any communication, if the group is null, prefetch negative, the list
/// of units empty; if a unit has no parameters, or none with elements, or an empty function; if a
/// parameter is undefined, is not of floating point (complex is not), requires no gradient, has
/// another dtype or device than its unit's first one, or is one of an earlier unit, too (the
/// message names unit and parameter, by their indices).
///
/// Destruction removes its hooks and launches nothing; what is under way may be left so. Shards
/// stay with whoever has them. The backward of a graph that was made before throws c10::Error.
std::unique_ptr<FullySharded> make_fully_sharded(std::vector<Unit> units, ProcessGroupPtr group,
                                                 const FullyShardedOptions& options = {});

}  // namespace ddp
