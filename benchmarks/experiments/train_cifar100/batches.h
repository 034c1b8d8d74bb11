#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "experiments/train_cifar100/data.h"
#include "harness/workload.h"

namespace ddp {

/// Records as images for a network.
class CifarImages {
 public:
  CifarImages(const at::Tensor& records, const at::Device& device);

  std::int64_t size() const { return labels_.size(0); }

  /// The images with these numbers (int64, on the CPU), normalized by the mean and standard
  /// deviation of CIFAR-100's colours, with their fine labels; both on the device.
  LabelledBatch batch(const at::Tensor& numbers) const;

 private:
  at::Device device_;
  at::Tensor pixels_;  // [n, 3, 32, 32], uint8, a view of the records
  at::Tensor labels_;  // [n], uint8, likewise
  at::Tensor mean_, deviation_;
};

/// A rank's part of the training images.
struct CifarShard {
  int rank = 0;
  int world_size = 1;
  std::uint64_t seed = 0;
};

/// The numbers of a rank's images in training order, the same in every epoch: as in the published
/// program, whose DistributedSampler is never told the epoch. A permutation that depends on the seed
/// is dealt out to the ranks one by one. It is extended from its beginning until all ranks have
/// equally many images, so that all make equally many steps.
at::Tensor shuffled_shard(std::int64_t images, const CifarShard& shard);

/// The numbers of a rank's images in validation: a contiguous range. Each image belongs to one
/// rank.
at::Tensor validation_shard(std::int64_t images, int rank, int world_size);

/// Seeds libtorch's generators, from which dropout draws, for a rank's epoch.
void seed_generators(const CifarShard& shard, std::int64_t epoch);

}  // namespace ddp
