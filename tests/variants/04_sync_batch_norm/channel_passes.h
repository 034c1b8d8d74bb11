#pragma once

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "channel_loops.h"

// The four passes of batch normalization over tensors x, g [N, C, ...], which are contiguous or
// channels-last, both alike: on the CPU by the loops beside this file, on a GPU by libtorch's own
// kernels. What there is one of for each channel is float64 [C] on the tensors' device.

namespace ddp::channels {

inline Layout layout_of(const at::Tensor& x) {
  const std::int64_t channels = x.size(1);
  const std::int64_t of_channel = channels == 0 ? 0 : x.numel() / channels;
  if (!x.is_contiguous() || x.size(0) == 0) {
    return {of_channel, channels, 1};
  }
  return {x.size(0), channels, of_channel / x.size(0)};
}

/// What libtorch's kernels take statistics in.
inline at::Tensor for_gpu(const at::Tensor& of_channels, const at::Tensor& x) {
  return of_channels.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

template <typename A>
std::vector<A> to_vector(const at::Tensor& of_channels) {
  const at::Tensor values = of_channels.contiguous();
  const double* begin = values.const_data_ptr<double>();
  return {begin, begin + values.numel()};
}

/// What is left of a mean that was rounded to `center`.
template <typename A>
at::Tensor remainder(const at::Tensor& mean, const std::vector<A>& center) {
  at::Tensor rest = mean.clone(at::MemoryFormat::Contiguous);
  double* values = rest.mutable_data_ptr<double>();
  for (std::size_t i = 0; i < center.size(); ++i) {
    values[i] -= center[i];
  }
  return rest;
}

/// The mean of each channel, and the sum of squared deviations from it; zeros without elements.
inline std::pair<at::Tensor, at::Tensor> moments(const at::Tensor& x) {
  const auto options = x.options().dtype(at::kDouble);
  const std::int64_t channels = x.size(1);
  if (x.numel() == 0) {
    return {at::zeros({channels}, options), at::zeros({channels}, options)};
  }
  if (x.is_cuda()) {
    constexpr double kNoEps = 1e-30;  // 0 would make a variance of 0 infinite
    const auto [mean, invstd] = at::batch_norm_stats(x, kNoEps);
    const std::int64_t count = x.numel() / channels;
    return {mean.to(at::kDouble), (invstd.to(at::kDouble).pow(-2) - kNoEps) * count};
  }
  const at::Tensor result = at::empty({2, channels}, options);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "moments", [&] {
    double* values = result.mutable_data_ptr<double>();
    for (const Moments& one : moments(x.const_data_ptr<scalar_t>(), layout_of(x))) {
      values[0] = one.mean;
      values[channels] = one.m2;
      ++values;
    }
  });
  return {result[0], result[1]};
}

/// (x - mean) * invstd * weight + bias. By value: what is not needed any more goes before the
/// output comes.
inline at::Tensor normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& invstd,
                            at::Tensor weight, at::Tensor bias) {
  if (x.is_cuda() && x.numel() > 0) {
    return at::batch_norm_elemt(x, for_gpu(weight, x), for_gpu(bias, x), for_gpu(mean, x),
                                for_gpu(invstd, x), /*eps=*/0);
  }
  at::Tensor y;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "normalize", [&] {
    using A = Accumulate<scalar_t>;
    const auto center = to_vector<A>(mean);
    const auto scale = to_vector<A>(invstd * weight);
    const auto shift = to_vector<A>(bias - remainder(mean, center) * invstd * weight);
    weight.reset();
    bias.reset();
    y = at::empty_like(x);
    normalize<scalar_t>(x.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(), layout_of(x),
                        {center, scale, shift});
  });
  return y;
}

/// [2, C]: of each channel the sum of g, and the sum of g * (x - mean).
inline at::Tensor gradient_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean) {
  if (x.is_cuda() && x.numel() > 0) {
    const at::Tensor center = for_gpu(mean, x);
    const auto sums = at::batch_norm_backward_reduce(g, x, center, at::ones_like(center), {},
                                                     /*input_g=*/true, false, false);
    return at::stack({std::get<0>(sums), std::get<1>(sums)}).to(at::kDouble);
  }
  at::Tensor result = at::empty({2, x.size(1)}, mean.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "gradient_sums", [&] {
    const auto center = to_vector<Accumulate<scalar_t>>(mean);
    double* values = result.mutable_data_ptr<double>();
    for (const auto& [sum, product] : gradient_sums(
             g.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(), layout_of(x), center)) {
      values[0] = sum;
      values[x.size(1)] = product;
      ++values;
    }
    result[1].sub_(remainder(mean, center) * result[0]);
  });
  return result;
}

/// (g - mean_g - (x - mean) * invstd^2 * mean_gx) * invstd * weight
inline at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                                 const at::Tensor& invstd, const at::Tensor& weight,
                                 const at::Tensor& mean_g, const at::Tensor& mean_gx) {
  if (x.is_cuda() && x.numel() > 0) {
    const at::Tensor one = at::ones({1}, x.options().dtype(at::kInt));  // the count: they are means
    return at::batch_norm_backward_elemt(g, x, for_gpu(mean, x), for_gpu(invstd, x),
                                         for_gpu(weight, x), for_gpu(mean_g, x),
                                         for_gpu(mean_gx, x), one);
  }
  at::Tensor dx = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "input_gradient", [&] {
    using A = Accumulate<scalar_t>;
    const auto center = to_vector<A>(mean);
    const at::Tensor scale = invstd * weight;
    const at::Tensor slope = -scale * invstd.square() * mean_gx;
    const at::Tensor shift = -scale * mean_g - remainder(mean, center) * slope;
    combine<scalar_t>(g.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(),
                      dx.mutable_data_ptr<scalar_t>(), layout_of(x),
                      {center, to_vector<A>(scale), to_vector<A>(slope), to_vector<A>(shift)});
  });
  return dx;
}

}  // namespace ddp::channels
