#pragma once

namespace ddp {

class NoSync;

/// What every data-parallel stage (01-03) returns: it keeps the gradients of a fixed list of
/// parameters equal on all ranks of a process group.
///
/// A training step of a rank:
///
///     loss = mean loss over this rank's shard of the batch
///     loss.backward();
///     synchronizer->finish();     // now every gradient is the mean over the ranks
///     optimizer.step();
///
/// Gradients. The parameters' gradients are shared property: between the first communication of a
/// step and the end of finish() they belong to the synchronizer, and nobody else reads or writes
/// them; after finish() they belong to the caller again. A synchronizer may copy its result back
/// into the tensor that backward filled, or replace `parameter.grad()` by a view of a buffer of its
/// own: callers must ask the parameter for its gradient again after finish(). The caller may set
/// gradients to zero or to none between steps.
///
/// No gradient. A parameter whose gradient is undefined on this rank at finish() counts as zero
/// here. If it is undefined on every rank, it may stay undefined or become zero.
///
/// Collective calls. Construction and finish() must be made by all ranks, in the same order.
/// finish() twice in a row, or with no gradient ready anywhere, does no harm: averages of equal
/// values stay what they are.
///
/// Lifetime. Destruction unhooks everything: a later backward neither communicates nor touches
/// freed memory. No rank may destroy a synchronizer between backward and finish().
class GradientSynchronizer {
 public:
  GradientSynchronizer() = default;
  GradientSynchronizer(const GradientSynchronizer&) = delete;
  GradientSynchronizer& operator=(const GradientSynchronizer&) = delete;
  virtual ~GradientSynchronizer() = default;

  /// Ends a step: when it returns, the gradient of every parameter that requires one is the mean
  /// over the ranks. Inside a NoSync scope it does nothing. Throws c10::Error where communication
  /// fails.
  virtual void finish() = 0;

  /// False inside a NoSync scope: gradients accumulate locally and nothing is communicated.
  bool synchronizes() const { return no_sync_depth_ == 0; }

 private:
  friend class NoSync;
  int no_sync_depth_ = 0;
};

/// While one of these lives, the synchronizer communicates nothing: gradients of several
/// micro-batches accumulate, and the first finish() after the scope averages their sum. Scopes
/// nest.
///
///     { NoSync guard(*synchronizer);  loss(first_half).backward(); }
///     loss(second_half).backward();
///     synchronizer->finish();
class NoSync {
 public:
  explicit NoSync(GradientSynchronizer& synchronizer) : synchronizer_(synchronizer) {
    ++synchronizer_.no_sync_depth_;
  }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
  ~NoSync() { --synchronizer_.no_sync_depth_; }

 private:
  GradientSynchronizer& synchronizer_;
};

}  // namespace ddp
