#pragma once

namespace ddp {

class NoSync;

/// What a NoSync scope silences: a synchronizer, or whatever else collects gradients.
class Silenceable {
 public:
  /// False inside a NoSync scope: gradients accumulate locally and nothing is communicated.
  bool synchronizes() const { return no_sync_depth_ == 0; }

 protected:
  ~Silenceable() = default;
  /// A scope begins (1) or ends (-1).
  virtual void silence(int change) { no_sync_depth_ += change; }

 private:
  friend class NoSync;
  int no_sync_depth_ = 0;
};

/// What each data-parallel stage (01-03) returns: it keeps the gradients of a fixed list of
/// parameters equal on all ranks of a process group.
///
/// A training step of one rank:
///
///     loss = mean loss over this rank's shard of the batch
///     loss.backward();
///     synchronizer->finish();     // now every gradient is the mean over the ranks
///     optimizer.step();
///
/// Gradients. Between the first communication of a step and the end of finish(), the gradients
/// belong to the synchronizer, and nobody else may read or write them; after finish() they belong
/// to the caller again. A synchronizer may copy its result back into the tensor that backward
/// filled, or replace `parameter.grad()` by a view of its own buffer: callers must ask for
/// `parameter.grad()` again then. The caller may set gradients to zero or to none
/// between steps, or replace them by dense tensors of its own that do not overlap, themselves or one
/// another; they may require a gradient.
///
/// No gradient. A gradient that is undefined on this rank at finish() counts as zero here. If it is
/// undefined on every rank, it may stay undefined or become zero. One that was left from an earlier
/// step, and that no backward of this step has touched, may take part or not: averaged once, it is
/// equal on all ranks.
///
/// Collective calls. All ranks must construct the synchronizer and call finish(), in the same
/// order. Calling finish() twice in a row, or with no gradient ready on any rank, is harmless. NaN and
/// infinity are averaged like other values. With a single rank, or for what has no elements, nothing
/// need be sent.
///
/// Lifetime. Destruction removes its hooks, and communicates nothing: a later backward neither
/// communicates nor touches freed memory. No rank may destroy a synchronizer between backward and
/// finish().
///
/// Surroundings. Per-thread and global state is left as it was: autograd's mode, the
/// default dtype, the number of threads, the state of random numbers, the modes of arithmetic.
///
/// Errors. Where communication fails, whichever call needs it throws. After an exception from
/// backward, for example of somebody else's hook, finish() ends the step, whose gradients are of no
/// use then, and the next step is as any other. After an error of the synchronizer itself it need
/// not be usable.
class GradientSynchronizer : public Silenceable {
 public:
  GradientSynchronizer() = default;
  GradientSynchronizer(const GradientSynchronizer&) = delete;
  GradientSynchronizer& operator=(const GradientSynchronizer&) = delete;
  virtual ~GradientSynchronizer() = default;

  /// Ends a step: when it returns, the gradient of every parameter that requires one is the mean
  /// over the ranks. Inside a NoSync scope it does nothing. Throws c10::Error if communication
  /// fails.
  virtual void finish() = 0;
};

/// While a NoSync lives, the synchronizer communicates nothing: the gradients of several
/// micro-batches accumulate, and the first finish() after the scope averages their sum. Scopes may
/// be nested.
///
///     { NoSync guard(*synchronizer);  loss(first_half).backward(); }
///     loss(second_half).backward();
///     synchronizer->finish();
class NoSync {
 public:
  explicit NoSync(Silenceable& synchronizer) : synchronizer_(synchronizer) {
    synchronizer_.silence(1);
  }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
  ~NoSync() { synchronizer_.silence(-1); }

 private:
  Silenceable& synchronizer_;
};

}  // namespace ddp
