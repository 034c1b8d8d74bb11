#pragma once

#include <cstdint>
#include <filesystem>

#include "experiments/train_cifar100/data.h"

namespace ddp {

/// Generated images in CIFAR-100's format, for where it is not at hand: each class is a smooth
/// random picture, each image that of its class, shifted a little, in noise. One label in five is
/// wrong: no network, however long it is trained, predicts more than about 80 % of them. There are
/// 100 classes, or fewer, so that each has 50 images to be learnt from, but at least 4.
///
/// The bytes depend on `seed` and `sizes` alone. They are kept as train.bin and test.bin in a
/// folder of their own in `cache`, and made where they are missing or damaged; each appears whole
/// or not at all, so several runs may do so at once. Throws std::runtime_error, which names the
/// file, where it cannot be written.
CifarData synthetic_cifar100(std::uint64_t seed, const CifarSizes& sizes,
                             const std::filesystem::path& cache);

}  // namespace ddp
