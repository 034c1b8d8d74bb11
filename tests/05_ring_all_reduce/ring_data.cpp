#include "ring_data.h"

#include <ATen/ATen.h>

#include <limits>
#include <random>

#include "support/compare.h"

namespace ddp::testing {

namespace {

// Values repeat after this many positions, a prime: no two chunks are equal.
constexpr std::int64_t kPeriod = 1021;
// The largest possible sum of the ranks' absolute values: bfloat16 has all integers up to 256.
constexpr std::int64_t kLargestSum = 128;
// Multiplied by this, int64 values need more digits than float64 has, and their sums just fit.
constexpr std::int64_t kLargeFactor = (std::int64_t{1} << 55) + 1;

// The first period of a rank's whole values, divided by the world size.
at::Tensor quotients(int rank, int world_size) {
  const std::int64_t largest = kLargestSum / (world_size * world_size);
  std::mt19937_64 random(settings().seed * 64 + rank);
  std::vector<std::int64_t> values(kPeriod);
  for (std::int64_t& value : values) {
    value = static_cast<std::int64_t>(random() % (2 * largest + 1)) - largest;
  }
  return at::tensor(values, at::kLong);
}

at::Tensor repeated(const at::Tensor& period, const RingCase& one) {
  const at::Tensor typed = period.to(one.dtype) * (one.dtype == at::kLong ? kLargeFactor : 1);
  const std::int64_t times = one.elements / kPeriod + 1;
  return typed.repeat({times}).narrow(0, 0, one.elements).contiguous().to(settings().device);
}

}  // namespace

std::string describe(const RingCase& one) {
  return std::string("the ") + (one.op == ReduceOp::kAverage ? "average" : "sum") + " of " +
         std::to_string(one.elements) + " elements of " + c10::getDtypeNames(one.dtype).first;
}

at::Tensor whole_values(const RingCase& one, int rank, int world_size) {
  return repeated(quotients(rank, world_size) * world_size, one);
}

at::Tensor combined_whole_values(const RingCase& one, int world_size) {
  at::Tensor sum = at::zeros({kPeriod}, at::kLong);
  for (int rank = 0; rank < world_size; ++rank) {
    sum += quotients(rank, world_size);
  }
  return repeated(one.op == ReduceOp::kAverage ? sum : sum * world_size, one);
}

double tolerance_of(const RingCase& one) {
  // N+1 roundings of the N averaged numbers, each by half an epsilon; N > 2, since N = 2 is exact.
  return one.op == ReduceOp::kSum ? 0 : 2.0 / 3.0 * kLargestSum * epsilon_of(one.dtype);
}

at::Tensor random_values(const RingCase& one, int rank) {
  std::mt19937_64 random(settings().seed * 64 + 32 + rank);
  std::uniform_real_distribution<double> between(-1, 1);
  std::vector<double> values(one.elements);
  for (double& value : values) {
    value = between(random);
  }
  return at::tensor(values, at::kDouble).to(one.dtype).to(settings().device);
}

std::vector<std::int64_t> sizes_up_to(std::int64_t most) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 0; size < 18; ++size) {
    sizes.push_back(size);
  }
  for (std::int64_t power = 32; power <= most; power *= 2) {
    sizes.insert(sizes.end(), {power - 1, power, power + 1});
  }
  return sizes;
}

RingCase case_in_turn(std::int64_t elements, std::size_t turn) {
  constexpr std::pair<at::ScalarType, ReduceOp> kTurns[] = {
      {at::kFloat, ReduceOp::kSum},    {at::kBFloat16, ReduceOp::kAverage},
      {at::kLong, ReduceOp::kSum},     {at::kDouble, ReduceOp::kAverage},
      {at::kHalf, ReduceOp::kSum},     {at::kFloat, ReduceOp::kAverage},
      {at::kInt, ReduceOp::kSum},      {at::kDouble, ReduceOp::kSum},
      {at::kHalf, ReduceOp::kAverage}, {at::kShort, ReduceOp::kSum},
      {at::kBFloat16, ReduceOp::kSum}};
  const auto& [dtype, op] = kTurns[turn % std::size(kTurns)];
  return {.elements = elements, .dtype = dtype, .op = op};
}

at::Tensor chunk_of(const at::Tensor& tensor, int rank, int world_size) {
  const at::Tensor flat = tensor.reshape({-1});
  const Chunk chunk = balanced_split(flat.numel(), world_size)[rank];
  return flat.narrow(0, chunk.begin, chunk.size);
}

bool has_same_bits_everywhere(Rank& rank, const at::Tensor& tensor) {
  const at::Tensor mine = at::scalar_tensor(fingerprint(tensor), at::kLong);
  const at::Tensor all = all_gather(mine.to(settings().device), rank.group());
  return all.eq(all[0]).all().item<bool>();
}

double epsilon_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kFloat:
      return std::numeric_limits<float>::epsilon();
    case at::kHalf:
      return 0x1p-10;
    default:
      return 0x1p-7;  // bfloat16
  }
}

}  // namespace ddp::testing
