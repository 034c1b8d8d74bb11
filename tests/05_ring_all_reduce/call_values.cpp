#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <limits>

#include "ddp/balanced_split.h"
#include "ring_calls.h"
#include "support/settings.h"

namespace ddp::testing {

namespace {

at::Tensor bits_of(std::int64_t elements, at::ScalarType dtype, const at::Generator& random) {
  const auto bytes = elements * static_cast<std::int64_t>(c10::elementSize(dtype));
  const at::Tensor bits = at::empty({bytes / 8 + 1}, at::kLong);
  bits.random_(std::numeric_limits<std::int64_t>::min(), std::nullopt, random);
  return bits.view(dtype).narrow(0, 0, elements).clone();
}

// The bits of the smallest numbers are small integers beside a sign. No arithmetic of floating point
// makes them, which may have been told to flush them.
at::Tensor small_integers_as_bits(std::int64_t elements, at::ScalarType dtype,
                                  const at::Generator& random) {
  constexpr at::ScalarType kBySize[] = {at::kByte, at::kByte, at::kShort, at::kInt, at::kInt,
                                        at::kLong, at::kLong, at::kLong,  at::kLong};
  const auto bytes = static_cast<int>(c10::elementSize(dtype));
  const at::Tensor numbers = at::randint(10, {elements}, random, at::kLong);
  const at::Tensor signs = at::randint(2, {elements}, random, at::kLong);
  return (numbers + signs * (std::int64_t{-1} << (8 * bytes - 1))).to(kBySize[bytes]).view(dtype);
}

}  // namespace

at::Tensor values_of(const RingCall& call, int rank, int ranks, int number) {
  const std::int64_t elements =
      call.view == nullptr ? call.elements : call.view->of(at::empty(call.view->whole)).numel();
  const auto random =
      at::make_generator<at::CPUGeneratorImpl>(settings().seed * 64 + rank + 1'000'003 * number);
  if (call.values == Values::kBits || !at::isFloatingType(call.dtype)) {
    at::Tensor bits = bits_of(elements, call.dtype, random);
    if (bits.is_floating_point()) {
      const auto chunks = balanced_split(elements, ranks);
      const Chunk& zeros = chunks[1 % ranks];  // equal to the others', but for their sign
      bits.narrow(0, zeros.begin, zeros.size).fill_(rank == 1 % ranks ? -0.0 : 0.0);
      bits.narrow(0, chunks[rank].begin, chunks[rank].size > 0 ? 1 : 0).fill_(-0.0);
    }
    return bits;
  }
  if (call.values == Values::kZeros) {
    return at::full({elements}, rank % 2 == 0 ? 0.0 : -0.0, call.dtype);
  }
  if (call.values == Values::kSubnormal) {
    return small_integers_as_bits(elements, call.dtype, random);
  }
  at::Tensor values = at::rand({elements}, random, at::kDouble) * 2 - 1;
  if (call.values == Values::kNotFinite) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (std::int64_t at = 0; at + 8 <= elements && rank < 2; at += 8) {
      values[at + 1 + rank].fill_(std::numeric_limits<double>::quiet_NaN());
      values[at + 4].fill_(rank == 0 ? kInfinity : -kInfinity);
      values[at + 6].fill_(rank == 0 ? -kInfinity : 1.0);
    }
  }
  return values.to(call.dtype);
}

}  // namespace ddp::testing
