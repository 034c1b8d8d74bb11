// Correct, and unusual: the running statistics are updated when the graph is complete, and has saved
// weight and bias; autograd is given only the tensors that there are, and told which.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "04_sync_batch_norm/sync_batch_norm.h"
#include "ddp/batch_norm.h"

namespace ddp {
namespace {

void check_channels(const char* name, const at::Tensor& tensor, const at::Tensor& input) {
  if (!tensor.defined()) {
    return;
  }
  TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) == input.size(1), "sync_batch_norm: ", name,
              " has shape ", tensor.sizes(), ", but the input ", input.sizes(), " has ",
              input.size(1), " channels");
  TORCH_CHECK(tensor.scalar_type() == input.scalar_type() || tensor.scalar_type() == at::kFloat,
              "sync_batch_norm: ", name, " is ", tensor.scalar_type(), ", but must be ",
              input.scalar_type(), " as the input, or float");
  TORCH_CHECK(tensor.device() == input.device(), "sync_batch_norm: ", name, " is on ",
              tensor.device(), ", but the input on ", input.device());
}

void check_arguments(const at::Tensor& input, const BatchNormTensors& tensors,
                     const ProcessGroupPtr& group, const SyncBatchNormOptions& options) {
  TORCH_CHECK(group, "sync_batch_norm: the process group is null");
  TORCH_CHECK(input.defined(), "sync_batch_norm: the input is undefined");
  TORCH_CHECK(input.dim() >= 2 && input.dim() <= 5, "sync_batch_norm: the input has shape ",
              input.sizes(), ", but must be [N, C] and up to three dimensions more");
  TORCH_CHECK(input.size(1) > 0, "sync_batch_norm: the input ", input.sizes(), " has no channels");
  TORCH_CHECK(at::isFloatingType(input.scalar_type()), "sync_batch_norm: the input is ",
              input.scalar_type(), ", but must be floating point");
  check_channels("the weight", tensors.weight, input);
  check_channels("the bias", tensors.bias, input);
  check_channels("running_mean", tensors.running_mean, input);
  check_channels("running_var", tensors.running_var, input);
  TORCH_CHECK(tensors.running_mean.defined() == tensors.running_var.defined(),
              "sync_batch_norm: running_mean and running_var belong together; only one is defined");
  TORCH_CHECK(options.eps > 0, "sync_batch_norm: eps is ", options.eps,
              ", but must be greater than 0");
}

// --- From elements to channels and back. Whatever exists once per channel is float64 [C]. ---

/// In the dtype that sums are formed in: float32 for half and bfloat16, else unchanged.
at::Tensor wide(const at::Tensor& values) {
  return values.to(at::toOpMathType(values.scalar_type()));
}

/// [C] as [1, C, 1, ...], which broadcasts against values [N, C, ...], and in their dtype.
at::Tensor spread(const at::Tensor& of_channels, const at::Tensor& values) {
  std::vector<std::int64_t> shape(values.dim(), 1);
  shape[1] = values.size(1);
  return of_channels.to(values.scalar_type()).view(shape);
}

/// The sum over all dimensions but the channels: [C].
at::Tensor sum_by_channel(const at::Tensor& values) {
  std::vector<std::int64_t> dimensions = {0};
  for (std::int64_t dimension = 2; dimension < values.dim(); ++dimension) {
    dimensions.push_back(dimension);
  }
  return values.sum(dimensions).to(at::kDouble);
}

// --- Statistics ---

struct Statistics {
  at::Tensor mean, variance;   // of each channel; the variance is the biased one
  double count = 0;            // elements per channel in the batch; 0 for running statistics
  ProcessGroupPtr group = {};  // the ranks that share the batch; null if it is this rank's own
};

/// What a rank knows of its own batch: the means, the sums of squared deviations from them (M), and
/// the number of elements per channel, [2C + 1]. All zeros for a rank without samples.
at::Tensor local_moments(const at::Tensor& x) {
  const std::int64_t count = x.numel() / x.size(1);
  const at::Tensor mean = sum_by_channel(x) / std::max<std::int64_t>(count, 1);
  const at::Tensor m2 = sum_by_channel((x - spread(mean, x)).square_());
  return at::cat({mean, m2, at::full({1}, count, mean.options())});
}

/// The statistics of several batches taken together, from the moments of each, [batches, 2C + 1]
/// (Chan, Golub, LeVeque 1983).
Statistics combine(const at::Tensor& moments) {
  const std::int64_t channels = moments.size(1) / 2;
  const at::Tensor means = moments.narrow(1, 0, channels);
  const at::Tensor m2s = moments.narrow(1, channels, channels);
  const at::Tensor counts = moments.narrow(1, 2 * channels, 1);
  const at::Tensor total = counts.sum();
  const at::Tensor mean = (counts * means).sum(0) / total;
  const at::Tensor m2 = (m2s + counts * (means - mean).square()).sum(0);
  return {.mean = mean, .variance = m2 / total, .count = total.item<double>()};
}

/// The statistics of the global batch: ONE collective, to which each rank contributes 2C + 1 numbers.
Statistics statistics_of_all_ranks(const at::Tensor& x, const ProcessGroupPtr& group) {
  Statistics batch = combine(all_gather(local_moments(x), group));
  TORCH_CHECK(batch.count > 1, "sync_batch_norm: the global batch has ", batch.count,
              " elements a channel, but a variance needs at least 2");
  batch.group = group;
  return batch;
}

Statistics running_statistics(const BatchNormTensors& tensors) {
  return {.mean = tensors.running_mean.to(at::kDouble).clone(),  // may change before backward
          .variance = tensors.running_var.to(at::kDouble)};
}

void update_running(const BatchNormTensors& tensors, const Statistics& batch, double momentum) {
  if (!tensors.running_mean.defined()) {
    return;
  }
  const at::Tensor unbiased = batch.variance * (batch.count / (batch.count - 1));
  tensors.running_mean.mul_(1 - momentum).add_(batch.mean.to(tensors.running_mean), momentum);
  tensors.running_var.mul_(1 - momentum).add_(unbiased.to(tensors.running_var), momentum);
}

/// The statistics to normalize by. Autograd does not record how they depend on the input: that is
/// part of Normalize::backward().
Statistics statistics_for(const at::Tensor& input, const BatchNormTensors& tensors,
                          const ProcessGroupPtr& group, const SyncBatchNormOptions& options) {
  const at::NoGradGuard no_grad;
  if (options.training) {
    return statistics_of_all_ranks(wide(input), group);
  }
  return tensors.running_mean.defined() ? running_statistics(tensors)
                                        : combine(local_moments(wide(input)).unsqueeze(0));
}

// --- Forward and backward ---

class Normalize : public torch::autograd::Function<Normalize> {
 public:
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  static at::Tensor forward(Context* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const Statistics& statistics,
                            double eps) {
    const at::Tensor invstd = (statistics.variance + eps).rsqrt();
    context->save_for_backward({input, weight.value_or(at::Tensor()), bias.value_or(at::Tensor()),
                                statistics.mean, invstd});
    context->saved_data["count"] = statistics.count;
    context->saved_data["group"] = statistics.group;
    const at::Tensor x = wide(input);
    const at::Tensor output = x - spread(statistics.mean, x);  // new, so the rest is done in place
    output.mul_(spread(weight ? invstd * *weight : invstd, x));
    if (bias) {
      output.add_(spread(*bias, x));
    }
    return output.to(input.scalar_type());
  }

  /// One gradient for each argument of forward; autograd converts them to the arguments' dtypes.
  static Tensors backward(Context* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    const at::Tensor &weight = saved[1], &bias = saved[2], &mean = saved[3], &invstd = saved[4];
    // Of the tensors that autograd was given: a missing weight has no number.
    const bool wants_weight = weight.defined() && context->needs_input_grad(1);
    const bool wants_bias = bias.defined() && context->needs_input_grad(weight.defined() ? 2 : 1);
    const at::Tensor x = wide(saved[0]);
    const at::Tensor g = wide(gradients[0]);
    const at::Tensor x_hat = (x - spread(mean, x)).mul_(spread(invstd, x));
    const at::Tensor sums = at::stack({sum_by_channel(g), sum_by_channel(g * x_hat)});
    at::Tensor of_input;
    if (context->needs_input_grad(0)) {
      // weight / sigma * (g - mean(g) - x_hat * mean(g * x_hat)), the last use of x_hat
      const at::Tensor means = means_over_batch(context, sums);
      of_input = g - spread(means[0], g);
      of_input.sub_(x_hat.mul_(spread(means[1], g)));
      of_input.mul_(spread(weight.defined() ? invstd * weight : invstd, g));
    }
    return {of_input,
            wants_weight ? sums[1] : at::Tensor(),
            wants_bias ? sums[0] : at::Tensor(),
            {},
            {}};
  }

 private:
  /// From this rank's sums, the means over the batch that the statistics were computed from. For
  /// the global batch that takes ONE collective, to which each rank contributes 2C numbers. Running
  /// statistics do not depend on the input, so for them both means are zero.
  static at::Tensor means_over_batch(Context* context, const at::Tensor& sums) {
    const double count = context->saved_data["count"].toDouble();
    if (count == 0) {
      return at::zeros_like(sums);
    }
    const at::Tensor total = sums.clone();  // the local sums are needed as they are
    if (const auto group = context->saved_data["group"].toCustomClass<c10d::ProcessGroup>()) {
      all_reduce(total, group);
    }
    return total / count;
  }
};

class SyncBatchNorm : public BatchNorm {
 public:
  SyncBatchNorm(const BatchNormOptions& options, ProcessGroupPtr group)
      : BatchNorm(options), group_(std::move(group)) {}

  at::Tensor forward(const at::Tensor& input) override {
    const bool tracks = is_training() && options().track_running_stats;
    // In a cumulative average this batch weighs as much as each of those before it.
    const double cumulative = tracks ? 1.0 / (num_batches_tracked.item<double>() + 1.0) : 0.0;
    at::Tensor output = sync_batch_norm(input, {weight, bias, running_mean, running_var}, group_,
                                        {.training = is_training(),
                                         .momentum = options().momentum.value_or(cumulative),
                                         .eps = options().eps});
    if (tracks) {
      num_batches_tracked.add_(1);
    }
    return output;
  }

 private:
  ProcessGroupPtr group_;
};

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& input, const BatchNormTensors& tensors,
                           const ProcessGroupPtr& group, const SyncBatchNormOptions& options) {
  check_arguments(input, tensors, group, options);
  const auto if_defined = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  const Statistics statistics = statistics_for(input, tensors, group, options);
  at::Tensor output = Normalize::apply(input, if_defined(tensors.weight), if_defined(tensors.bias),
                                       statistics, options.eps);
  if (options.training) {
    const at::NoGradGuard no_grad;
    update_running(tensors, statistics, options.momentum);
  }
  return output;
}

std::shared_ptr<BatchNorm> make_sync_batch_norm(const BatchNormOptions& options,
                                                ProcessGroupPtr group) {
  TORCH_CHECK(group, "make_sync_batch_norm: the process group is null");
  return std::make_shared<SyncBatchNorm>(options, std::move(group));
}

}  // namespace ddp
