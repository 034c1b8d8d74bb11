#include "ddp/referee/poison.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace ddp {

namespace {

// Signalling NaNs: the top bit of the mantissa is 0. An operation's number fills the k*Number bits;
// the others, the mark, stay set when the NaN becomes quiet. A double's mantissa begins as a
// float's, so a conversion keeps mark and number; those of half and bfloat16 have no mark.
constexpr std::uint32_t kFloatBits = 0x7FA00000;
constexpr std::uint32_t kFloatNumber = 0x001FFFFF;
constexpr std::uint64_t kDoubleBits = 0x7FF4000000000000;
constexpr int kDoubleShift = 29;  // bits that a double has and a float has not
constexpr std::uint16_t kHalfBits = 0x7C55;
constexpr std::uint16_t kBFloat16Bits = 0x7F95;

// The bits of a poisoned element; its size is the dtype's.
std::uint64_t pattern(at::ScalarType dtype, std::int64_t operation) {
  const auto number = static_cast<std::uint64_t>(operation);
  switch (dtype) {
    case at::kFloat:
    case at::kComplexFloat:
      return kFloatBits | (number & kFloatNumber);
    case at::kDouble:
    case at::kComplexDouble:
      return kDoubleBits | (number & kFloatNumber) << kDoubleShift;
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

}  // namespace

void poison(const at::Tensor& tensor, std::int64_t operation) {
  const std::uint64_t bits = pattern(tensor.scalar_type(), operation);
  const std::size_t unit = unit_size(tensor);
  const std::size_t bytes = tensor.nbytes();
  auto* data = static_cast<char*>(tensor.data_ptr());
  for (std::size_t at = 0; at < bytes; at += unit) {
    std::memcpy(data + at, &bits, unit);  // little-endian, as every machine that libtorch supports
  }
}

std::optional<std::int64_t> first_unpoisoned(const at::Tensor& tensor, std::int64_t operation,
                                             std::size_t bytes) {
  const std::uint64_t bits = pattern(tensor.scalar_type(), operation);
  const std::size_t unit = unit_size(tensor);
  const std::size_t end = std::min(bytes, tensor.nbytes());
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  for (std::size_t at = 0; at < end; at += unit) {
    if (std::memcmp(data + at, &bits, unit) != 0) {
      return static_cast<std::int64_t>(at / tensor.element_size());
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> find_poison(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble) {
    return std::nullopt;
  }
  const at::Tensor dense = tensor.to(at::kFloat).contiguous();
  const auto* data = static_cast<const char*>(dense.const_data_ptr());
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, data + i * sizeof(bits), sizeof(bits));
    const std::uint32_t number = bits & kFloatNumber;
    // All ones is what libtorch makes of a half that is no number.
    if ((bits & kFloatBits) == kFloatBits && number != kFloatNumber) {
      return static_cast<std::int64_t>(number);
    }
  }
  return std::nullopt;
}

}  // namespace ddp
