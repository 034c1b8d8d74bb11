#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

// CIFAR-100 in its binary version, as plain bytes, read before the ranks are forked, which then
// share them. A file is a sequence of records of 3,074 bytes:
//
//     1 byte       the coarse label, 0 to 19
//     1 byte       the fine label, 0 to 99
//     3,072 bytes  the pixels: 32x32 of red, row by row, then of green, then of blue
//
// (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009;
// cs.toronto.edu/~kriz/cifar.html)

constexpr std::int64_t kCifarSide = 32;
constexpr std::int64_t kCifarPixels = 3 * kCifarSide * kCifarSide;
constexpr std::int64_t kCifarRecord = 2 + kCifarPixels;  // bytes
constexpr std::int64_t kCifarCoarse = 20;                // labels
constexpr std::int64_t kCifarFine = 100;
constexpr std::int64_t kCifarTrain = 50'000;  // records of train.bin
constexpr std::int64_t kCifarTest = 10'000;   // of test.bin

/// The records of one file, in order.
using CifarRecords = std::vector<std::uint8_t>;

/// How many images are used for training, and how many for validation.
struct CifarSizes {
  std::int64_t train = 0;
  std::int64_t test = 0;
};

/// A data set of real or generated images: "CIFAR-100" or "synthetic", as all tables and figures
/// call it.
struct CifarData {
  std::string kind;
  std::int64_t classes = kCifarFine;  // classes that occur
  CifarRecords train, test;

  /// A hash of all bytes, as 16 hexadecimal digits.
  std::string fingerprint() const;
};

/// The first `wanted` records of a file that must have `expected` records. Throws c10::ValueError,
/// which names the file, the byte and the error, for a file that is missing, truncated or foreign:
/// a label out of range, an end inside a record, too few or too many records.
CifarRecords read_cifar_file(const std::filesystem::path& file, std::int64_t expected,
                             std::int64_t wanted);

/// The first images of train.bin and test.bin in `folder`, or in its folder cifar-100-binary, into
/// which the published archive unpacks. Throws c10::ValueError as read_cifar_file() does.
CifarData read_cifar100(const std::filesystem::path& folder, const CifarSizes& sizes);

/// The bytes in the type that writers and checksums take.
std::string_view as_text(const CifarRecords& records);

/// A checksum for files, FNV-1a of 64 bits (Fowler, Noll, Vo), as 16 hexadecimal digits; `start` is
/// the checksum of the text before `text`.
constexpr std::uint64_t kFnvStart = 0xcbf29ce484222325;
std::uint64_t fnv1a(std::string_view text, std::uint64_t start = kFnvStart);
std::string hexadecimal(std::uint64_t number);

/// 36900 as "36,900".
std::string with_commas(std::int64_t number);

}  // namespace ddp
