#include "peers/fused_batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "peers/channel_passes.h"

namespace ddp {
namespace {

// A channel has a handful of numbers. As tensors, each operation on them would cost more than the
// passes over a small batch; here they are plain loops.
using Doubles = std::span<double>;

Doubles values_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<double>(), static_cast<std::size_t>(tensor.numel())};
}

// This rank's means, sums of squared deviations from them, and count: [2C + 1].
at::Tensor local_moments(const at::Tensor& x) {
  const ChannelLayout layout = channel_layout(x);
  ByChannel origin(layout.channels);  // near the mean, so that squares of distances lose little
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    origin[c] = x.const_data_ptr<float>()[c * layout.inner];
  }
  const auto [sums, squares] = sums_of_squares(x, origin);
  const auto count = static_cast<double>(layout.count());
  at::Tensor moments = at::empty({2 * layout.channels + 1}, at::kDouble);
  const Doubles values = values_of(moments);
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    values[c] = origin[c] + sums[c] / count;
    values[layout.channels + c] = std::max(0.0, squares[c] - sums[c] * sums[c] / count);
  }
  values.back() = count;
  return moments;
}

// Moments of several batches taken together (Chan, Golub, LeVeque 1983). all: [batches, 2C + 1].
at::Tensor merge(const at::Tensor& all) {
  at::Tensor merged = all[0].clone();
  const Doubles total = values_of(merged);
  const std::size_t width = total.size(), channels = width / 2;
  for (Doubles rest = values_of(all).subspan(width); !rest.empty(); rest = rest.subspan(width)) {
    const double count = total.back(), other = rest[width - 1], sum = count + other;
    for (std::size_t c = 0; c < channels; ++c) {
      const double distance = rest[c] - total[c];
      total[c] += distance * (other / sum);
      total[channels + c] += rest[channels + c] + distance * distance * (count * other / sum);
    }
    total.back() = sum;
  }
  return merged;
}

void update_running(BatchNorm& state, const Doubles& moments) {
  if (!state.running_mean.defined()) {
    return;
  }
  const double momentum = *state.options().momentum;
  float* mean = state.running_mean.mutable_data_ptr<float>();
  float* variance = state.running_var.mutable_data_ptr<float>();
  const std::size_t channels = moments.size() / 2;
  for (std::size_t c = 0; c < channels; ++c) {
    const double unbiased = moments[channels + c] / (moments.back() - 1);
    mean[c] = static_cast<float>(mean[c] + momentum * (moments[c] - mean[c]));
    variance[c] = static_cast<float>(variance[c] + momentum * (unbiased - variance[c]));
  }
}

float value_or(const at::Tensor& of_channels, std::size_t channel, float otherwise) {
  return of_channels.defined() ? of_channels.const_data_ptr<float>()[channel] : otherwise;
}

class FusedFunction : public torch::autograd::Function<FusedFunction> {
 public:
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  // Weight and bias, which are the state's, are arguments because they get gradients.
  static at::Tensor forward(Context* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& /*bias*/, BatchNorm& state,
                            const ProcessGroupPtr& group) {
    const at::Tensor x = input.contiguous(input.suggest_memory_format());
    const at::Tensor batch = merge(all_gather(local_moments(x), group));
    const Doubles moments = values_of(batch);
    TORCH_CHECK(moments.back() > 1, "the global batch has ", moments.back(),
                " elements a channel, but a variance needs at least 2");
    update_running(state, moments);
    const std::size_t channels = moments.size() / 2;
    ByChannel center(channels), scale(channels), shift(channels);
    for (std::size_t c = 0; c < channels; ++c) {
      double& invstd = moments[channels + c];  // in the place of the squared deviations
      invstd = 1 / std::sqrt(invstd / moments.back() + state.options().eps);
      const double factor = invstd * value_or(state.weight, c, 1);
      center[c] = static_cast<float>(moments[c]);
      scale[c] = static_cast<float>(factor);
      shift[c] = static_cast<float>(value_or(state.bias, c, 0) - (moments[c] - center[c]) * factor);
    }
    context->save_for_backward({x, weight.value_or(at::Tensor()), batch});
    context->saved_data["group"] = group;
    return scale_and_shift(x, center, scale, shift);
  }

  static Tensors backward(Context* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const Doubles moments = values_of(saved[2]);  // means, inverse deviations, count
    const at::Tensor g = gradients[0].contiguous(x.suggest_memory_format());
    const std::size_t channels = moments.size() / 2;
    const auto [first, second] = sums_of_products(g, x, centers(moments));
    at::Tensor sums = at::empty({2 * x.size(1)}, at::kDouble);
    const Doubles values = values_of(sums);
    for (std::size_t c = 0; c < channels; ++c) {
      const auto rest = moments[c] - static_cast<float>(moments[c]);
      values[c] = first[c];
      values[channels + c] = second[c] - rest * first[c];
    }
    Tensors result(5);  // one for each argument of forward
    if (weight.defined()) {
      const at::Tensor by_channel = sums.view({2, -1});
      result[1] = (by_channel[1] * saved[2].narrow(0, x.size(1), x.size(1))).to(at::kFloat);
      result[2] = by_channel[0].to(at::kFloat);
    }
    all_reduce(sums, context->saved_data["group"].toCustomClass<c10d::ProcessGroup>());
    result[0] = input_gradient(g, x, weight, moments, values);
    return result;
  }

 private:
  static ByChannel centers(const Doubles& moments) {
    const Doubles means = moments.first(moments.size() / 2);
    return {means.begin(), means.end()};
  }

  // (g - mean of g - (x - mean) * invstd^2 * mean of g (x - mean)) * invstd * weight
  static at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x,
                                   const at::Tensor& weight, const Doubles& moments,
                                   const Doubles& sums) {
    const std::size_t channels = moments.size() / 2;
    const double count = moments.back();
    const ByChannel center = centers(moments);
    ByChannel scale(channels), slope(channels), shift(channels);
    for (std::size_t c = 0; c < channels; ++c) {
      const double invstd = moments[channels + c], factor = invstd * value_or(weight, c, 1);
      const double gradient = -factor * invstd * invstd * sums[channels + c] / count;
      scale[c] = static_cast<float>(factor);
      slope[c] = static_cast<float>(gradient);
      shift[c] =
          static_cast<float>(-factor * sums[c] / count - (moments[c] - center[c]) * gradient);
    }
    return combine(g, x, center, scale, slope, shift);
  }
};

class FusedBatchNorm : public BatchNorm {
 public:
  FusedBatchNorm(const BatchNormOptions& options, ProcessGroupPtr group)
      : BatchNorm(options), group_(std::move(group)) {
    TORCH_CHECK(group_, "make_fused_batch_norm: the process group is null");
    TORCH_CHECK(options.momentum, "make_fused_batch_norm: a cumulative average is not supported");
  }

  at::Tensor forward(const at::Tensor& input) override {
    TORCH_CHECK(is_training(), "the fused batch normalization is for training");
    if (num_batches_tracked.defined()) {
      num_batches_tracked.add_(1);
    }
    const auto optional = [](const at::Tensor& tensor) {
      return tensor.defined() ? std::optional(tensor) : std::nullopt;
    };
    return FusedFunction::apply(input, optional(weight), optional(bias),
                                static_cast<BatchNorm&>(*this), group_);
  }

 private:
  ProcessGroupPtr group_;
};

}  // namespace

std::shared_ptr<BatchNorm> make_fused_batch_norm(const BatchNormOptions& options,
                                                 ProcessGroupPtr group) {
  return std::make_shared<FusedBatchNorm>(options, std::move(group));
}

}  // namespace ddp
