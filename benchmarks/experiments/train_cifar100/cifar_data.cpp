#include "experiments/train_cifar100/cifar_data.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "ddp/balanced_split.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kArchive = "cifar-100-binary";  // its folder
constexpr std::int64_t kCoarseLabels = 20, kFineLabels = 100;

// Of generated images.
constexpr std::int64_t kImagesOfClass = 50;  // for training, at least
constexpr std::int64_t kFewestClasses = 4;
constexpr std::int64_t kCoarseSide = 5;  // a picture has 5x5 random colours
constexpr double kContrast = 32;         // their largest distance from grey, in 0..255
constexpr std::int64_t kShift = 2;       // the largest shift of an image, in pixels
constexpr double kNoise = 36;            // standard deviation of a pixel
constexpr double kWrongLabels = 0.2;     // the part of them

at::Tensor read_records(const fs::path& file, std::int64_t expected, std::int64_t wanted) {
  const std::int64_t bytes = expected * kCifarRecord;
  TORCH_CHECK_VALUE(fs::is_regular_file(file), file.string(), ": there is no such file");
  const auto found = static_cast<std::int64_t>(fs::file_size(file));
  TORCH_CHECK_VALUE(found == bytes, file.string(), ": has ", found, " bytes, and a whole file has ",
                    bytes, ": ", expected, " records. Unpack it again");
  const at::Tensor records =
      at::from_file(file.string(), /*shared=*/false, bytes, at::kByte).view({expected, -1});
  for (const auto& [place, labels, which] :
       {std::tuple(0, kCoarseLabels, "coarse"), std::tuple(1, kFineLabels, "fine")}) {
    const at::Tensor wrong = records.select(1, place).ge(labels);
    const auto record = wrong.to(at::kByte).argmax().item<std::int64_t>();
    TORCH_CHECK_VALUE(!wrong.any().item<bool>(), file.string(), ": the ", which, " label ",
                      records[record][place].item<int>(), " of record ", record + 1,
                      " is not in 0..", labels - 1,
                      "; this is no file of CIFAR-100's binary version");
  }
  return records.slice(0, 0, wanted);
}

// Of one class each, in 0..255, larger than an image by the shift on each side.
at::Tensor pictures(std::int64_t classes, at::Generator& generator) {
  const at::Tensor points =
      at::rand({classes, 3, kCoarseSide, kCoarseSide}, generator).sub_(0.5).mul_(2 * kContrast);
  const std::int64_t side = kCifarSide + 2 * kShift;
  return at::upsample_bilinear2d(points, {side, side}, /*align_corners=*/true).add_(128);
}

at::Tensor generate(const at::Tensor& pictures, std::int64_t images, at::Generator& generator) {
  const std::int64_t classes = pictures.size(0);
  const at::Tensor shown = at::randint(classes, {images}, generator, at::kLong);
  const at::Tensor other = at::randint(classes, {images}, generator, at::kLong);
  const at::Tensor wrong = at::rand({images}, generator).lt(kWrongLabels);
  const at::Tensor labels = at::where(wrong, other, shown);
  const at::Tensor shifts = at::randint(2 * kShift + 1, {images, 2}, generator, at::kLong);
  at::Tensor records = at::empty({images, kCifarRecord}, at::kByte);
  records.select(1, 0).copy_(labels.floor_divide(kFineLabels / kCoarseLabels));
  records.select(1, 1).copy_(labels);
  for (std::int64_t i = 0; i < images; ++i) {
    const at::Tensor seen = pictures[shown[i].item<std::int64_t>()]
                                .narrow(1, shifts[i][0].item<std::int64_t>(), kCifarSide)
                                .narrow(2, shifts[i][1].item<std::int64_t>(), kCifarSide);
    const at::Tensor noise = at::randn(seen.sizes(), generator).mul_(kNoise);
    records[i].slice(0, 2).copy_(noise.add_(seen).clamp_(0, 255).flatten());
  }
  return records;
}

// CIFAR-100's, in 0..1, as published programs round them; generated images are similar.
constexpr double kMean[] = {0.5071, 0.4867, 0.4408};
constexpr double kDeviation[] = {0.2675, 0.2565, 0.2761};

at::Tensor per_colour(const double (&values)[3], const at::Device& device) {
  return at::tensor(at::ArrayRef<double>(values)).to(at::kFloat).view({3, 1, 1}).to(device);
}

// Different for each epoch and for each rank in it.
std::uint64_t mixed_seed(const CifarShard& shard, std::int64_t epoch) {
  return (shard.seed << 32) + (static_cast<std::uint64_t>(epoch + 1) << 8) + shard.rank;
}

}  // namespace

CifarData read_cifar100(const fs::path& folder, std::int64_t train, std::int64_t test) {
  const bool packed = fs::exists(folder / kArchive) && !fs::exists(folder / "train.bin");
  const fs::path place = packed ? folder / kArchive : folder;
  TORCH_CHECK_VALUE(fs::exists(place / "train.bin") || fs::exists(place / "test.bin"),
                    folder.string(), ": has neither train.bin nor ", kArchive,
                    "/train.bin; --data takes the folder that CIFAR-100's binary version, ",
                    kArchive, ".tar.gz, was unpacked in");
  return {.kind = "CIFAR-100",
          .classes = kFineLabels,
          .train = read_records(place / "train.bin", kCifarTrain, train),
          .test = read_records(place / "test.bin", kCifarTest, test)};
}

CifarData synthetic_cifar100(std::uint64_t seed, std::int64_t train, std::int64_t test) {
  const std::int64_t classes = std::clamp(train / kImagesOfClass, kFewestClasses, kFineLabels);
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const at::Tensor shown = pictures(classes, generator);
  return {.kind = "synthetic",
          .classes = classes,
          .train = generate(shown, train, generator),
          .test = generate(shown, test, generator)};
}

CifarImages::CifarImages(const at::Tensor& records, const at::Device& device)
    : device_(device),
      pixels_(records.slice(1, 2).unflatten(1, {3, kCifarSide, kCifarSide})),
      labels_(records.select(1, 1)),
      mean_(per_colour(kMean, device)),
      deviation_(per_colour(kDeviation, device)) {}

LabelledBatch CifarImages::batch(const at::Tensor& numbers) const {
  at::Tensor images = pixels_.index_select(0, numbers).to(device_).to(at::kFloat);
  images.div_(255).sub_(mean_).div_(deviation_);
  return {.inputs = images, .labels = labels_.index_select(0, numbers).to(device_).to(at::kLong)};
}

at::Tensor shuffled_shard(std::int64_t images, const CifarShard& shard) {
  at::Generator generator = at::detail::createCPUGenerator(shard.seed);
  const at::Tensor order = at::randperm(images, generator);
  const std::int64_t each = (images + shard.world_size - 1) / shard.world_size;
  const at::Tensor places = at::arange(each) * shard.world_size + shard.rank;
  return order.index_select(0, places.remainder(images));
}

at::Tensor validation_shard(std::int64_t images, int rank, int world_size) {
  const Chunk chunk = balanced_split(images, world_size)[rank];
  return at::arange(chunk.begin, chunk.begin + chunk.size);
}

void seed_generators(const CifarShard& shard, std::int64_t epoch) {
  at::manual_seed(mixed_seed(shard, epoch));
}

}  // namespace ddp
