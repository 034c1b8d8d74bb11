#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>

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

/// How many images are used for training, and how many for validation.
struct CifarSizes {
  std::int64_t train = 0;
  std::int64_t test = 0;
};

/// A data set of real or generated images: "CIFAR-100" or "synthetic", as all tables and figures
/// call it.
struct CifarData {
  std::string kind;
  std::int64_t classes = 100;  // that occur
  at::Tensor train, test;      // records [n, 3074], uint8, on the CPU
};

/// The first images of train.bin and test.bin in `folder`, or in its folder cifar-100-binary, into
/// which the published archive unpacks; ranks share the files' memory. Throws c10::ValueError, which
/// names the file, for one that is missing, of another length, or has labels out of range.
CifarData read_cifar100(const std::filesystem::path& folder, const CifarSizes& sizes);

/// Generated images in the same format, for when the data set is not available: each class is a
/// smooth random picture, each image its class's picture, slightly shifted and with noise. One
/// label in five is wrong: no network, however long it is trained, predicts more than about 80 % of
/// them. There are 100 classes, or fewer, so that each has 50 images to learn from, but at least 4.
/// The bytes depend on `seed` and `sizes` alone.
CifarData synthetic_cifar100(std::uint64_t seed, const CifarSizes& sizes);

}  // namespace ddp
