#pragma once

#include <cstdint>
#include <filesystem>

#include "experiments/train_cifar100/data.h"

namespace ddp {

/// Generated images in CIFAR-100's format, for when the data set is not available: each class is a
/// smooth random picture, each image its class's picture, slightly shifted and with noise. One
/// label in five is wrong: no network, however long it is trained, predicts more than about 80 % of
/// them. There are 100 classes, or fewer, so that each has 50 images to learn from, but at least 4.
///
/// The bytes depend on `seed` and `sizes` alone. They are stored as train.bin and test.bin in a
/// folder of their own in `cache`, and generated if they are missing or damaged; each file appears
/// complete or not at all, so several runs may do so at once. Throws std::runtime_error, which
/// names the file, if it cannot be written.
CifarData synthetic_cifar100(std::uint64_t seed, const CifarSizes& sizes,
                             const std::filesystem::path& cache);

}  // namespace ddp
