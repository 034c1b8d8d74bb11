#include "experiments/train_cifar100/batches.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "ddp/balanced_split.h"

namespace ddp {
namespace {

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
