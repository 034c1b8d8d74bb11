#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "measuring/workload.h"

namespace ddp {

// CIFAR-100 in its binary version. A file is a sequence of records of 3,074 bytes:
//
//     1 byte       the coarse label, 0 to 19
//     1 byte       the fine label, 0 to 99
//     3,072 bytes  the pixels: 32x32 of red, row by row, then of green, then of blue
//
// (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009;
// cs.toronto.edu/~kriz/cifar.html)

constexpr std::int64_t kCifarSide = 32;
constexpr std::int64_t kCifarRecord = 2 + 3 * kCifarSide * kCifarSide;  // bytes
constexpr std::int64_t kCifarTrain = 50'000;                            // records of train.bin
constexpr std::int64_t kCifarTest = 10'000;                             // of test.bin

/// A data set of real or generated images: "CIFAR-100" or "synthetic", as all tables and figures
/// call it.
struct CifarData {
  std::string kind;
  std::int64_t classes = 100;  // that occur
  at::Tensor train, test;      // records [n, 3074], uint8, on the CPU
};

/// The first `train` and `test` images of train.bin and test.bin in `folder`, or in its folder cifar-100-binary, into
/// which the published archive unpacks; ranks share the files' memory. Throws c10::ValueError, which
/// names the file, for one that is missing, of another length, or has labels out of range.
CifarData read_cifar100(const std::filesystem::path& folder, std::int64_t train, std::int64_t test);

/// Generated images in the same format, for when the data set is not available: each class is a
/// smooth random picture, each image its class's picture, slightly shifted and with noise. One
/// label in five is wrong: no network, however long it is trained, predicts more than about 80 % of
/// them. There are 100 classes, or fewer, so that each has 50 images to learn from, but at least 4.
/// The bytes depend on the arguments alone.
CifarData synthetic_cifar100(std::uint64_t seed, std::int64_t train, std::int64_t test);

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
