#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "experiments/train_cifar100/data.h"
#include "harness/workload.h"

namespace ddp {

/// Records as images for a network. They must outlive it: it copies none.
class CifarImages {
 public:
  CifarImages(const CifarRecords& records, const at::Device& device);

  std::int64_t size() const { return labels_.size(0); }

  /// The images with these numbers (int64, on the CPU), normalized by the mean and the standard
  /// deviation of CIFAR-100's colours, and their fine labels; both on the device.
  LabelledBatch batch(const at::Tensor& numbers) const;

 private:
  at::Device device_;
  at::Tensor pixels_;  // [n, 3, 32, 32], uint8, a view of the records
  at::Tensor labels_;  // [n], uint8, likewise
  at::Tensor mean_, deviation_;
};

/// Who takes part in an epoch.
struct CifarShard {
  int rank = 0;
  int world_size = 1;
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
};

/// The numbers of a rank's images in an epoch, in the order in which it trains with them: as
/// PyTorch's DistributedSampler does it, a permutation that depends on seed and epoch, dealt out to
/// the ranks in turn. So that all ranks make equally many steps, it begins again at its end, until
/// all have equally many images.
at::Tensor shuffled_shard(std::int64_t images, const CifarShard& shard);

/// The numbers of a rank's images in a validation: a run of them. Each image is one rank's.
at::Tensor validation_shard(std::int64_t images, int rank, int world_size);

/// Seeds libtorch's generators, which the dropout draws from, for a rank's epoch. So an epoch draws
/// the same numbers wherever training begins, and a checkpoint has no state of a generator to keep.
void seed_generators(const CifarShard& shard);

}  // namespace ddp
