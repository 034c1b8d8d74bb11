#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

// The passes over memory that batch normalization needs, for float32 on the CPU. Each reads its
// tensors once and writes one at most. They know nothing of ranks or of autograd.

namespace ddp {

/// Memory is [outer, channels, inner] without gaps: NCHW with inner = H * W, or NC and NHWC, where
/// inner = 1 and outer counts all positions.
struct ChannelLayout {
  std::int64_t outer = 0, channels = 0, inner = 0;

  std::int64_t count() const { return outer * inner; }  // elements of a channel
};

/// The layout of x [N, C, ...]. Throws c10::Error unless x is float32 on the CPU, has an element,
/// and is contiguous in its suggested memory format.
ChannelLayout channel_layout(const at::Tensor& x);

/// One float32 for each channel.
using ByChannel = std::vector<float>;

/// Two sums for each channel, in float64: the same whatever the number of threads.
struct PairsOfSums {
  std::vector<double> first, second;
};

/// The sums of d and of d * d, where d = x - center.
PairsOfSums sums_of_squares(const at::Tensor& x, const ByChannel& center);
/// The sums of g and of g * (x - center).
PairsOfSums sums_of_products(const at::Tensor& g, const at::Tensor& x, const ByChannel& center);

/// (x - center) * scale + shift
at::Tensor scale_and_shift(const at::Tensor& x, const ByChannel& center, const ByChannel& scale,
                           const ByChannel& shift);
/// g * scale + (x - center) * slope + shift
at::Tensor combine(const at::Tensor& g, const at::Tensor& x, const ByChannel& center,
                   const ByChannel& scale, const ByChannel& slope, const ByChannel& shift);

}  // namespace ddp
