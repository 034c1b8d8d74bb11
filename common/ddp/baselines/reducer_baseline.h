#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ddp/collectives.h"

namespace c10d {
class Reducer;
}

namespace ddp {

/// The defaults are those of PyTorch's DistributedDataParallel, except broadcast_buffers.
struct ReducerBaselineOptions {
  /// A bucket is full once it holds at least `cap_bytes`; the first one of a step only needs
  /// `first_bucket_bytes`, so that communication begins early.
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t cap_bytes = std::int64_t{25} << 20;
  /// Makes gradients views of the buckets, which saves the copies into and out of them if gradients
  /// are set to zero between steps. If they are set to none, backward makes new ones, which must be
  /// copied in again.
  bool gradient_as_bucket_view = false;
  /// Before each forward all ranks take over rank 0's buffers, such as running statistics, in one
  /// broadcast for each dtype. DistributedDataParallel does so unless told not to.
  bool broadcast_buffers = false;
  /// Begins with the buckets that the Reducer would rebuild after the first step if gradients came
  /// in the reverse order of the parameters, and keeps them. Tensors on the meta device need it:
  /// to rebuild, ranks agree on values.
  bool rebuilt_from_the_start = false;
};

/// The baseline of stages 01-03: libtorch's own gradient synchronizer, c10d::Reducer, driven as
/// DistributedDataParallel drives it (Li et al., "PyTorch Distributed: Experiences on Accelerating
/// Data Parallel Training", 2020).
///
/// A training step of one rank:
///
///     baseline.before_forward();
///     loss = mean loss over this rank's shard of the batch
///     baseline.before_backward();
///     loss.backward();            // when it returns, every gradient is the mean over the ranks
///     optimizer.step();
///
/// Every trainable parameter must get a gradient in every backward, on all ranks: the baseline does not
/// look for unused ones, and the step after one without them throws c10::Error.
class ReducerBaseline {
 public:
  /// Collective: broadcasts rank 0's parameters and buffers, bit for bit. `parameters` may contain
  /// duplicates (tied weights), which count once, and frozen parameters, which are not reduced.
  /// Throws c10::Error if libtorch's Reducer rejects them.
  ReducerBaseline(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
                  const ProcessGroupPtr& group, const ReducerBaselineOptions& options = {});
  ReducerBaseline(const ReducerBaseline&) = delete;
  ReducerBaseline& operator=(const ReducerBaseline&) = delete;
  ~ReducerBaseline();

  /// Collective in the second step, which rebuilds the buckets in the order in which gradients
  /// became ready on rank 0 in the first step; with broadcast_buffers in every step.
  void before_forward();
  void before_backward();

  /// The current buckets, in the order in which they are reduced, as indices into the constructor's
  /// `parameters` (for a tied weight, its first).
  std::vector<std::vector<std::size_t>> buckets() const;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> buffers_;  // that are broadcast before forward
  ProcessGroupPtr group_;
  bool keeps_buckets_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

}  // namespace ddp
