#include "ddp/referee/poison.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace ddp {

namespace {

// Signalling NaNs: the top bit of the mantissa is 0. An operation's number fills the k*Number bits;
// the others, the mark, stay set when the NaN becomes quiet.
constexpr std::uint32_t kFloatBits = 0x7FA00000;
constexpr std::uint32_t kFloatNumber = 0x001FFFFF;
constexpr std::uint64_t kDoubleBits = 0x7FF5DD9000000000;
constexpr std::uint64_t kDoubleNumber = 0x00000000FFFFFFFF;
constexpr std::uint16_t kHalfBits = 0x7D55;
constexpr std::uint16_t kBFloat16Bits = 0x7FA5;

// The bits of a poisoned element; its size is the dtype's.
std::uint64_t pattern(at::ScalarType dtype, std::int64_t operation) {
  const auto number = static_cast<std::uint64_t>(operation);
  switch (dtype) {
    case at::kFloat:
    case at::kComplexFloat:
      return kFloatBits | (number & kFloatNumber);
    case at::kDouble:
    case at::kComplexDouble:
      return kDoubleBits | (number & kDoubleNumber);
    case at::kHalf:
      return kHalfBits;
    case at::kBFloat16:
      return kBFloat16Bits;
    default:
      return 0x01D9D9D9D9D9D901;  // its lowest byte is a legal bool
  }
}

// The size of the repeated pattern: a complex number is two floats.
std::size_t unit_size(const at::Tensor& tensor) {
  return tensor.is_complex() ? tensor.element_size() / 2 : tensor.element_size();
}

template <typename T>
std::optional<std::int64_t> find_marked(const at::Tensor& tensor, T mark, T number) {
  const at::Tensor dense = tensor.contiguous();
  const auto* data = static_cast<const char*>(dense.const_data_ptr());
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    T bits = 0;
    std::memcpy(&bits, data + i * sizeof(T), sizeof(T));
    if ((bits & mark) == mark) {
      return static_cast<std::int64_t>(bits & number);
    }
  }
  return std::nullopt;
}

}  // namespace

void poison(const at::Tensor& tensor, std::int64_t operation) {
  const std::uint64_t bits = pattern(tensor.scalar_type(), operation);
  const std::size_t unit = unit_size(tensor);
  auto* data = static_cast<char*>(tensor.data_ptr());
  for (std::size_t at = 0; at < tensor.nbytes(); at += unit) {
    std::memcpy(data + at, &bits, unit);  // little-endian, as every machine that libtorch supports
  }
}

std::optional<std::int64_t> first_unpoisoned(const at::Tensor& tensor, std::int64_t operation,
                                             std::size_t bytes) {
  const std::uint64_t bits = pattern(tensor.scalar_type(), operation);
  const std::size_t unit = unit_size(tensor);
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  for (std::size_t at = 0; at < std::min(bytes, tensor.nbytes()); at += unit) {
    if (std::memcmp(data + at, &bits, unit) != 0) {
      return static_cast<std::int64_t>(at / tensor.element_size());
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> find_poison(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) {
    return find_marked<std::uint32_t>(tensor, kFloatBits, kFloatNumber);
  }
  if (tensor.scalar_type() == at::kDouble) {
    return find_marked<std::uint64_t>(tensor, kDoubleBits, kDoubleNumber);
  }
  return std::nullopt;
}

}  // namespace ddp
