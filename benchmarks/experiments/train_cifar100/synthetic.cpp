#include "experiments/train_cifar100/synthetic.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>

#include "ddp/meters/whole_file.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// Increased when the same seed gives other images.
constexpr const char* kForm = "1";

constexpr int kCoarseSide = 4;  // a picture has 4x4 random colours
constexpr int kContrast = 32;   // their largest distance from grey, in 0..255
constexpr int kShift = 2;       // the largest shift of an image, in pixels
constexpr int kNoise = 36;      // standard deviation of a pixel
constexpr int kWrongLabelsIn100 = 20;
constexpr std::int64_t kImagesOfClass = 50;  // for training, at least
constexpr std::int64_t kFewestClasses = 4;

// std::mt19937_64 gives the same numbers everywhere; the library's distributions do not.
using Generator = std::mt19937_64;

int uniform(Generator& generator, int values) {
  return static_cast<int>(generator() % static_cast<std::uint64_t>(values));
}

/// The smooth picture of a class, in 3 colours, larger than an image by the shift on each side.
class Picture {
 public:
  explicit Picture(Generator& generator) {
    std::array<int, 3 * kPoints * kPoints> points{};
    for (int& point : points) {
      point = uniform(generator, 2 * kContrast + 1) - kContrast;
    }
    for (int colour = 0; colour < 3; ++colour) {
      const int* plane = points.data() + colour * kPoints * kPoints;
      for (int row = 0; row < kSide; ++row) {
        for (int column = 0; column < kSide; ++column) {
          pixels_[(colour * kSide + row) * kSide + column] = 128 + between(plane, row, column);
        }
      }
    }
  }

  int at(int colour, int row, int column) const {
    return pixels_[(colour * kSide + row + kShift) * kSide + column + kShift];
  }

 private:
  static constexpr int kSide = kCifarSide + 2 * kShift;
  static constexpr int kPoints = kCoarseSide + 1;
  static constexpr int kStep = (kSide + kCoarseSide - 1) / kCoarseSide;

  // Bilinear interpolation.
  static int between(const int* plane, int row, int column) {
    const int* corner = plane + row / kStep * kPoints + column / kStep;
    const int down = row % kStep, right = column % kStep;
    const int above = corner[0] * (kStep - right) + corner[1] * right;
    const int below = corner[kPoints] * (kStep - right) + corner[kPoints + 1] * right;
    return (above * (kStep - down) + below * down) / (kStep * kStep);
  }

  std::array<int, 3 * kSide * kSide> pixels_{};
};

/// Approximately normal: the sum of four random bytes, with a standard deviation of 147.8.
class Noise {
 public:
  explicit Noise(Generator& generator) : generator_(generator) {}

  int next() {
    bits_ = half_ ? bits_ >> 32 : generator_();
    half_ = !half_;
    int sum = -2 * 255;
    for (int byte = 0; byte < 4; ++byte) {
      sum += static_cast<int>(bits_ >> (8 * byte) & 0xff);
    }
    return sum * kNoise / 148;
  }

 private:
  Generator& generator_;
  std::uint64_t bits_ = 0;
  bool half_ = false;
};

void append_image(CifarRecords& records, const std::vector<Picture>& classes,
                  Generator& generator) {
  const auto count = static_cast<int>(classes.size());
  const int shown = uniform(generator, count);
  const bool wrong = uniform(generator, 100) < kWrongLabelsIn100;
  const int label = wrong ? uniform(generator, count) : shown;
  records.push_back(label / (kCifarFine / kCifarCoarse));
  records.push_back(label);
  const int down = uniform(generator, 2 * kShift + 1) - kShift;
  const int right = uniform(generator, 2 * kShift + 1) - kShift;
  Noise noise(generator);
  for (int colour = 0; colour < 3; ++colour) {
    for (int row = 0; row < kCifarSide; ++row) {
      for (int column = 0; column < kCifarSide; ++column) {
        const int pixel = classes[shown].at(colour, row + down, column + right) + noise.next();
        records.push_back(std::clamp(pixel, 0, 255));
      }
    }
  }
}

/// The contents of a file.
struct Content {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // distinguishes training from validation images
  std::int64_t images = 0;
  std::int64_t classes = 0;
};

CifarRecords generate(const Content& content) {
  Generator pictures(content.seed);
  std::vector<Picture> classes;
  classes.reserve(content.classes);
  for (std::int64_t i = 0; i < content.classes; ++i) {
    classes.emplace_back(pictures);
  }
  Generator generator(2 * content.seed + content.stream + 1);
  CifarRecords records;
  records.reserve(content.images * kCifarRecord);
  for (std::int64_t i = 0; i < content.images; ++i) {
    append_image(records, classes, generator);
  }
  return records;
}

CifarRecords read_or_make(const fs::path& file, const Content& content) {
  if (fs::exists(file)) {
    try {
      return read_cifar_file(file, content.images, content.images);
    } catch (const c10::ValueError&) {
      // Damaged: generate it again.
    }
  }
  CifarRecords records = generate(content);
  write_whole_file(file, as_text(records), "--output");
  return records;
}

}  // namespace

CifarData synthetic_cifar100(std::uint64_t seed, const CifarSizes& sizes, const fs::path& cache) {
  const std::string sized = std::to_string(sizes.train) + "_" + std::to_string(sizes.test);
  const fs::path folder =
      cache / ("synthetic_cifar100." + sized + ".seed_" + std::to_string(seed) + ".form_" + kForm);
  const std::int64_t classes = std::clamp(sizes.train / kImagesOfClass, kFewestClasses, kCifarFine);
  return {.kind = "synthetic",
          .classes = classes,
          .train = read_or_make(folder / "train.bin", {seed, 0, sizes.train, classes}),
          .test = read_or_make(folder / "test.bin", {seed, 1, sizes.test, classes})};
}

}  // namespace ddp
