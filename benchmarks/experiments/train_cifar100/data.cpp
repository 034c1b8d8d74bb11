#include "experiments/train_cifar100/data.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kArchive = "cifar-100-binary";  // its folder

// Bytes are counted from 1, like records.
void check_labels(const fs::path& file, const CifarRecords& records) {
  const auto check = [&](std::int64_t record, std::int64_t byte, const char* which,
                         std::int64_t labels) {
    const int label = records[record * kCifarRecord + byte];
    TORCH_CHECK_VALUE(label < labels, file.string(), ": byte ",
                      with_commas(record * kCifarRecord + byte + 1), ": the ", which, " label ",
                      label, " of record ", with_commas(record + 1), " is not in 0..", labels - 1,
                      "; this is no file of CIFAR-100's binary version");
  };
  const auto whole = static_cast<std::int64_t>(records.size()) / kCifarRecord;
  for (std::int64_t record = 0; record < whole; ++record) {
    check(record, 0, "coarse", kCifarCoarse);
    check(record, 1, "fine", kCifarFine);
  }
}

void check_size(const fs::path& file, std::int64_t bytes, std::int64_t expected) {
  const std::int64_t right = expected * kCifarRecord;
  const std::string remedy = "; a whole file has " + with_commas(right) +
                             " bytes: " + with_commas(expected) + " records. Unpack it again";
  TORCH_CHECK_VALUE(bytes > 0, file.string(), ": is empty", remedy);
  TORCH_CHECK_VALUE(bytes <= right, file.string(), ": goes on after byte ", with_commas(right),
                    ", to byte ", with_commas(bytes), remedy);
  TORCH_CHECK_VALUE(bytes % kCifarRecord == 0, file.string(), ": ends inside record ",
                    with_commas(bytes / kCifarRecord + 1), ", at byte ", with_commas(bytes),
                    remedy);
  TORCH_CHECK_VALUE(bytes == right, file.string(), ": ends after record ",
                    with_commas(bytes / kCifarRecord), ", at byte ", with_commas(bytes), remedy);
}

}  // namespace

std::string_view as_text(const CifarRecords& records) {
  return {static_cast<const char*>(static_cast<const void*>(records.data())), records.size()};
}

std::uint64_t fnv1a(std::string_view text, std::uint64_t start) {
  std::uint64_t hash = start;
  for (const char byte : text) {
    hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

std::string hexadecimal(std::uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(number));
  return text;
}

std::string with_commas(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto place = static_cast<std::int64_t>(text.size()) - 3; place > 0; place -= 3) {
    text.insert(place, ",");
  }
  return text;
}

std::string CifarData::fingerprint() const {
  return hexadecimal(fnv1a(as_text(test), fnv1a(as_text(train))));
}

CifarRecords read_cifar_file(const fs::path& file, std::int64_t expected, std::int64_t wanted) {
  TORCH_CHECK_VALUE(fs::exists(file), file.string(), ": there is no such file");
  TORCH_CHECK_VALUE(fs::is_regular_file(file), file.string(), ": is not a file");
  const auto bytes = static_cast<std::int64_t>(fs::file_size(file));
  CifarRecords records(std::min(bytes, expected * kCifarRecord));
  std::ifstream stream(file, std::ios::binary);
  stream.read(static_cast<char*>(static_cast<void*>(records.data())),
              static_cast<std::streamsize>(records.size()));
  TORCH_CHECK_VALUE(stream && stream.gcount() == static_cast<std::streamsize>(records.size()),
                    file.string(), ": cannot be read beyond byte ", with_commas(stream.gcount()));
  // First: a foreign file most likely has a foreign size as well.
  check_labels(file, records);
  check_size(file, bytes, expected);
  records.resize(wanted * kCifarRecord);
  return records;
}

CifarData read_cifar100(const fs::path& folder, const CifarSizes& sizes) {
  const bool packed = fs::exists(folder / kArchive) && !fs::exists(folder / "train.bin");
  const fs::path place = packed ? folder / kArchive : folder;
  TORCH_CHECK_VALUE(fs::exists(place / "train.bin") || fs::exists(place / "test.bin"),
                    folder.string(), ": has neither train.bin nor ", kArchive,
                    "/train.bin; --data takes the folder that CIFAR-100's binary version, ",
                    kArchive, ".tar.gz, was unpacked in");
  return {.kind = "CIFAR-100",
          .classes = kCifarFine,
          .train = read_cifar_file(place / "train.bin", kCifarTrain, sizes.train),
          .test = read_cifar_file(place / "test.bin", kCifarTest, sizes.test)};
}

}  // namespace ddp
