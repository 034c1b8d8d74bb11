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

/// The defaults are those of PyTorch's DistributedDataParallel.
struct ReducerPeerOptions {
  /// A bucket is full once it holds at least `cap_bytes`; the first one of a step is smaller, so
  /// that communication begins early.
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t cap_bytes = std::int64_t{25} << 20;
  /// Gradients are views of the buckets, which spares the copies into them and out of them where
  /// gradients are set to zero between steps. Set to none, backward makes new ones, and the copy in
  /// comes back.
  bool gradient_as_bucket_view = false;
};

/// The peer of stages 01-03: libtorch's own gradient synchronizer, c10d::Reducer, driven as
/// DistributedDataParallel drives it (Li et al., "PyTorch Distributed: Experiences on Accelerating
/// Data Parallel Training", 2020).
///
/// A training step of a rank:
///
///     peer.before_forward();
///     loss = mean loss over this rank's shard of the batch
///     peer.before_backward();
///     loss.backward();            // when it returns, every gradient is the mean over the ranks
///     optimizer.step();
///
/// Every trainable parameter must get a gradient in every backward, on all ranks: the peer does not
/// look for unused ones, and a next step without them throws c10::Error.
class ReducerPeer {
 public:
  /// Collective: it broadcasts rank 0's parameters and buffers, bit for bit. `parameters` may
  /// contain duplicates (tied weights), which count once, and frozen parameters, which are left
  /// alone. Throws c10::Error where libtorch's Reducer does not take them.
  ReducerPeer(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
              const ProcessGroupPtr& group, const ReducerPeerOptions& options = {});
  ReducerPeer(const ReducerPeer&) = delete;
  ReducerPeer& operator=(const ReducerPeer&) = delete;
  ~ReducerPeer();

  /// Collective in the second step, which rebuilds the buckets in the order in which the first
  /// step's gradients became ready on rank 0.
  void before_forward();
  void before_backward();

  /// The buckets of now, in the order in which they are reduced, as indices into the constructor's
  /// `parameters` (of a tied weight: its first).
  std::vector<std::vector<std::size_t>> buckets() const;

 private:
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

}  // namespace ddp
