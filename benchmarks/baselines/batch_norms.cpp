#include "baselines/batch_norms.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "04_sync_batch_norm/sync_batch_norm.h"

namespace ddp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor dense(const at::Tensor& tensor) {
  const bool channels_last = tensor.is_contiguous(at::MemoryFormat::ChannelsLast) ||
                             tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d);
  return channels_last ? tensor : tensor.contiguous();
}

// A [C] tensor, reshaped to broadcast with [N, C, ...].
at::Tensor along_channels(const at::Tensor& values, const at::Tensor& input) {
  std::vector<std::int64_t> shape(input.dim(), 1);
  shape[1] = -1;
  return values.view(shape);
}

std::vector<std::int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t i = 0; i < input.dim(); ++i) {
    if (i != 1) {
      dimensions.push_back(i);
    }
  }
  return dimensions;
}

// The dtype of statistics: float32 for half and bfloat16, else the input's.
at::ScalarType accumulate_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// [C] each: the mean and one over the standard deviation.
struct Statistics {
  at::Tensor mean, invstd;
};

Statistics local_statistics(const at::Tensor& input, double eps) {
  if (input.is_cuda()) {
    const auto [mean, invstd] = at::batch_norm_stats(input, eps);
    return {mean, invstd};
  }
  const auto [variance, mean] =
      at::var_mean(input.to(accumulate_type(input)), all_but_channels(input), /*correction=*/0);
  return {mean, (variance + eps).rsqrt()};
}

// The gathered statistics of the ranks that have samples: [ranks, C] twice and [ranks].
struct Gathered {
  at::Tensor mean, invstd, count;
};

Gathered gather(const at::Tensor& input, double eps, const ProcessGroupPtr& group) {
  const std::int64_t channels = input.size(1);
  const at::TensorOptions options = input.options().dtype(accumulate_type(input));
  at::Tensor own = at::zeros({2 * channels + 1}, options);
  if (input.numel() > 0) {
    const Statistics local = local_statistics(input, eps);
    const at::Tensor count = at::full({1}, input.numel() / channels, options);
    own = at::cat({local.mean, local.invstd, count});
  }
  const at::Tensor all = all_gather(own, group);
  const at::Tensor present = all.index({all.select(1, 2 * channels) >= 1});
  return {.mean = present.narrow(1, 0, channels),
          .invstd = present.narrow(1, channels, channels),
          .count = present.select(1, 2 * channels).contiguous()};
}

struct RunningStatistics {
  at::Tensor mean, variance;  // both or neither
  double momentum;
};

void update(const at::Tensor& running, const at::Tensor& batch, double momentum) {
  running.mul_(1 - momentum).add_(batch, momentum);
}

Statistics combine(const at::Tensor& input, const Gathered& ranks, const RunningStatistics& running,
                   double eps) {
  if (input.is_cuda()) {
    const at::Tensor count =
        running.mean.defined() ? ranks.count.to(running.mean.scalar_type()) : ranks.count;
    const auto [mean, invstd] = at::batch_norm_gather_stats_with_counts(
        input, ranks.mean.contiguous(), ranks.invstd.contiguous(), running.mean, running.variance,
        running.momentum, eps, count);
    return {mean, invstd};
  }
  const at::Tensor total = ranks.count.sum();
  const at::Tensor share = (ranks.count / total).unsqueeze(1);
  const at::Tensor mean = (share * ranks.mean).sum(0);
  const at::Tensor variances = ranks.invstd.pow(-2) - eps;
  const at::Tensor variance = (share * (variances + (ranks.mean - mean).square())).sum(0);
  if (running.mean.defined()) {
    update(running.mean, mean, running.momentum);
    update(running.variance, variance * (total / (total - 1)), running.momentum);
  }
  return {mean, (variance + eps).rsqrt()};
}

at::Tensor normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const Statistics& statistics, double eps) {
  if (input.is_cuda()) {
    return at::batch_norm_elemt(input, weight, bias, statistics.mean, statistics.invstd, eps);
  }
  const at::Tensor scale = weight.defined() ? statistics.invstd * weight : statistics.invstd;
  at::Tensor output = input - along_channels(statistics.mean, input);
  output.mul_(along_channels(scale, input));
  if (bias.defined()) {
    output.add_(along_channels(bias, input));
  }
  return output.to(input.scalar_type());
}

// Of this rank's samples, [C] each.
struct Sums {
  at::Tensor dy, dy_xmu;  // of the upstream gradient, and of its product with input - mean
  at::Tensor weight_gradient, bias_gradient;
};

Sums reduce(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
            const Statistics& statistics) {
  if (input.is_cuda()) {
    const auto [dy, dy_xmu, weight_gradient, bias_gradient] = at::batch_norm_backward_reduce(
        gradient, input, statistics.mean, statistics.invstd, weight, /*input_g=*/true,
        /*weight_g=*/weight.defined(), /*bias_g=*/weight.defined());
    return {dy, dy_xmu, weight_gradient, bias_gradient};
  }
  const std::vector<std::int64_t> dimensions = all_but_channels(input);
  at::Tensor products = input - along_channels(statistics.mean, input);
  products.mul_(gradient);
  const at::Tensor dy = gradient.sum(dimensions, /*keepdim=*/false, statistics.mean.scalar_type());
  const at::Tensor dy_xmu = products.sum(dimensions);
  return {dy, dy_xmu, dy_xmu * statistics.invstd, dy};
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input,
                          const at::Tensor& weight, const Statistics& statistics, const Sums& sums,
                          const at::Tensor& counts) {
  const auto& [mean, invstd] = statistics;
  if (input.is_cuda()) {
    return at::batch_norm_backward_elemt(gradient, input, mean, invstd,
                                         weight.defined() ? weight.to(mean.scalar_type()) : weight,
                                         sums.dy, sums.dy_xmu, counts);
  }
  const at::Tensor total = counts.sum();
  const at::Tensor scale = weight.defined() ? invstd * weight : invstd;
  at::Tensor result = input - along_channels(mean, input);
  result.mul_(along_channels(-invstd.square() * sums.dy_xmu / total, input));
  result.add_(gradient);
  result.sub_(along_channels(sums.dy / total, input));
  result.mul_(along_channels(scale, input));
  return result.to(input.scalar_type());
}

// libtorch's functions do not take undefined tensors, but std::nullopt.
std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

class Function : public torch::autograd::Function<Function> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& any_input,
                            const std::optional<at::Tensor>& any_weight,
                            const std::optional<at::Tensor>& any_bias,
                            const RunningStatistics& running, double eps,
                            const ProcessGroupPtr& group) {
    const at::Tensor input = dense(any_input);
    const at::Tensor weight = any_weight.value_or(at::Tensor());
    const at::Tensor bias = any_bias.value_or(at::Tensor());
    const Gathered ranks = gather(input, eps, group);
    const Statistics statistics = combine(input, ranks, running, eps);
    context->save_for_backward(
        {input, weight, statistics.mean, statistics.invstd, ranks.count.to(at::kInt)});
    context->saved_data["group"] = at::IValue::make_capsule(group);
    return input.numel() > 0 ? normalize(input, weight, bias, statistics, eps)
                             : at::empty_like(input);
  }

  // Gradients of input, weight and bias.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &counts = saved[4];
    const Statistics statistics = {saved[2], saved[3]};
    const at::Tensor gradient = dense(gradients[0]);
    // A rank without samples has no gradients, but the others wait for it.
    Sums sums;
    if (input.numel() > 0) {
      sums = reduce(gradient, input, weight, statistics);
    } else {
      sums.dy = sums.dy_xmu = at::zeros_like(statistics.mean);
    }
    at::Tensor result;
    if (context->needs_input_grad(0)) {
      const at::Tensor both = at::cat({sums.dy, sums.dy_xmu});
      all_reduce(both, c10::static_intrusive_pointer_cast<c10d::ProcessGroup>(
                           context->saved_data["group"].toCapsule()));
      if (input.numel() > 0) {
        sums.dy = both.narrow(0, 0, input.size(1));
        sums.dy_xmu = both.narrow(0, input.size(1), input.size(1));
        result = input_gradient(gradient, input, weight, statistics, sums, counts);
      }
    }
    if (!weight.defined()) {
      return {result, {}, {}, {}, {}, {}};
    }
    return {result, sums.weight_gradient, sums.bias_gradient, {}, {}, {}};
  }
};

class SyncBatchNormBaseline : public BatchNorm {
 public:
  SyncBatchNormBaseline(const BatchNormOptions& options, ProcessGroupPtr group)
      : BatchNorm(options), group_(std::move(group)) {
    TORCH_CHECK(group_, "make_sync_batch_norm_baseline: the process group is null");
  }

  at::Tensor forward(const at::Tensor& input) override {
    const bool keep_statistics = is_training() && running_mean.defined();
    const double momentum = keep_statistics ? count_batch() : 0;
    if (is_training() && group_->getSize() > 1) {
      const RunningStatistics running = {running_mean, running_var, momentum};
      return Function::apply(input, if_defined(weight), if_defined(bias), running, options().eps,
                             group_);
    }
    return at::batch_norm(input, weight, bias, running_mean, running_var,
                          is_training() || !running_mean.defined(), momentum, options().eps,
                          /*cudnn_enabled=*/true);
  }

 private:
  // Returns the weight of this batch in the running statistics.
  double count_batch() {
    num_batches_tracked.add_(1);
    return options().momentum ? *options().momentum : 1 / num_batches_tracked.item<double>();
  }

  const ProcessGroupPtr group_;
};

}  // namespace

std::shared_ptr<BatchNorm> make_sync_batch_norm_baseline(const BatchNormOptions& options,
                                                         ProcessGroupPtr group) {
  return std::make_shared<SyncBatchNormBaseline>(options, std::move(group));
}

namespace {

class LocalBatchNorm : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

  at::Tensor forward(const at::Tensor& input) override {
    num_batches_tracked.add_(1);
    return std::get<0>(at::native_batch_norm(input, weight, bias, running_mean, running_var,
                                             /*training=*/true, *options().momentum,
                                             options().eps));
  }
};

}  // namespace

std::shared_ptr<BatchNorm> make_batch_norm(const std::string& name, const BatchNormOptions& options,
                                           const ProcessGroupPtr& group) {
  if (name == kStageBatchNorm) {
    return make_sync_batch_norm(options, group);
  }
  if (name == kBaselineBatchNorm) {
    return make_sync_batch_norm_baseline(options, group);
  }
  TORCH_CHECK_VALUE(name == kLocalBatchNorm, "there is no batch normalization \"", name, "\"");
  return std::make_shared<LocalBatchNorm>(options);
}

}  // namespace ddp
