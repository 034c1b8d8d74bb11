// Correct, and unusual: plain tensor operations, and one all-reduce of the count, the sums and the
// sums of squares in float64, in which squares of float32 numbers are exact. Those of float64 numbers
// are not, so of such inputs means and variances are gathered. Backward keeps the variance, not its
// inverse root.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "04_sync_batch_norm/sync_batch_norm.h"
#include "ddp/batch_norm.h"

namespace ddp {
namespace {

namespace autograd = torch::autograd;

// All dimensions except 1.
std::vector<std::int64_t> other_dims(const at::Tensor& input) {
  std::vector<std::int64_t> dims = {0};
  for (std::int64_t dim = 2; dim < input.dim(); ++dim) {
    dims.push_back(dim);
  }
  return dims;
}

at::Tensor sum_of_channels(const at::Tensor& values) { return values.sum(other_dims(values)); }

// [C] as [1, C, 1, 1], or with as many dimensions as `input` has, in float64.
at::Tensor along_channels(const at::Tensor& of_channels, const at::Tensor& input) {
  std::vector<std::int64_t> shape(input.dim(), 1);
  shape[1] = -1;
  return of_channels.to(at::kDouble).reshape(shape);
}

at::Tensor normalized(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& variance,
                      double eps) {
  return (input.to(at::kDouble) - along_channels(mean, input)) /
         along_channels(variance + eps, input).sqrt();
}

struct Statistics {
  at::Tensor mean, variance;
  double count = 0;
};

Statistics statistics_of(const at::Tensor& sums) {
  const std::int64_t channels = (sums.numel() - 1) / 2;
  const auto count = sums[2 * channels].item<double>();
  const at::Tensor mean = sums.narrow(0, 0, channels) / count;
  const at::Tensor squares = sums.narrow(0, channels, channels) / count;
  return {mean, (squares - mean * mean).clamp_min(0), count};
}

at::Tensor local_sums(const at::Tensor& input) {
  const at::Tensor wide = input.to(at::kDouble);
  const std::int64_t count = input.size(1) == 0 ? 0 : input.numel() / input.size(1);
  return at::cat({sum_of_channels(wide), sum_of_channels(wide * wide),
                  at::full({1}, static_cast<double>(count), wide.options())});
}

// From the ranks' counts, means and variances.
Statistics gathered_statistics(const at::Tensor& input, const ProcessGroupPtr& group) {
  const std::int64_t channels = input.size(1);
  const auto count = static_cast<double>(input.numel()) / static_cast<double>(channels);
  const at::Tensor mean = sum_of_channels(input) / std::max(count, 1.0);
  const at::Tensor centred = input - along_channels(mean, input);
  const at::Tensor variance = sum_of_channels(centred * centred) / std::max(count, 1.0);
  const at::Tensor all =
      all_gather(at::cat({mean, variance, at::full({1}, count, mean.options())}), group);
  const at::Tensor share = all.narrow(1, 2 * channels, 1) / all.narrow(1, 2 * channels, 1).sum();
  const at::Tensor means = all.narrow(1, 0, channels);
  const at::Tensor middle = (share * means).sum(0);
  const at::Tensor distances = means - middle;
  return {middle, (share * (all.narrow(1, channels, channels) + distances * distances)).sum(0),
          all.narrow(1, 2 * channels, 1).sum().item<double>()};
}

Statistics statistics_of_all(const at::Tensor& input, const ProcessGroupPtr& group) {
  if (input.scalar_type() == at::kDouble) {
    return gathered_statistics(input, group);
  }
  const at::Tensor sums = local_sums(input);
  all_reduce(sums, group);
  return statistics_of(sums);
}

void blend(const at::Tensor& running, const at::Tensor& batch, double momentum) {
  if (running.defined()) {
    running.copy_(running.to(at::kDouble) * (1 - momentum) + batch * momentum);
  }
}

Statistics statistics_for(const at::Tensor& input, const BatchNormTensors& tensors,
                          const ProcessGroupPtr& group, const SyncBatchNormOptions& options) {
  if (!options.training && tensors.running_mean.defined()) {
    return {tensors.running_mean.to(at::kDouble, false, /*copy=*/true),
            tensors.running_var.to(at::kDouble, false, /*copy=*/true), 0};
  }
  if (!options.training) {
    return statistics_of(local_sums(input));
  }
  Statistics global = statistics_of_all(input, group);
  TORCH_CHECK(global.count > 1, "a variance needs more than one value in each channel; there are ",
              global.count, " on all ranks together");
  blend(tensors.running_mean, global.mean, options.momentum);
  blend(tensors.running_var, global.variance * (global.count / (global.count - 1)),
        options.momentum);
  return global;
}

class Normalize : public autograd::Function<Normalize> {
 public:
  // Autograd does not take undefined tensors here, but std::nullopt.
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>&, const std::optional<at::Tensor>&,
                            const BatchNormTensors& tensors, const ProcessGroupPtr& group,
                            const SyncBatchNormOptions& options) {
    const auto& [weight, bias, running_mean, running_var] = tensors;
    const Statistics used = statistics_for(input, tensors, group, options);
    context->save_for_backward({input, weight, used.mean, used.variance});
    context->saved_data["count"] = used.count;
    context->saved_data["eps"] = options.eps;
    context->saved_data["has_bias"] = bias.defined();
    if (options.training) {
      context->saved_data["group"] = c10::IValue::make_capsule(group);
    }
    at::Tensor output = normalized(input, used.mean, used.variance, options.eps);
    if (weight.defined()) {
      output = output * along_channels(weight, input);
    }
    if (bias.defined()) {
      output = output + along_channels(bias, input);
    }
    return output.to(input.scalar_type());
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &variance = saved[3];
    const double eps = context->saved_data["eps"].toDouble();
    const at::Tensor gradient = upstream[0].to(at::kDouble);
    const at::Tensor centred = normalized(input, mean, variance, eps);
    const at::Tensor of_bias = sum_of_channels(gradient);
    const at::Tensor of_weight = sum_of_channels(gradient * centred);
    autograd::variable_list gradients(6);
    if (context->needs_input_grad(0)) {
      at::Tensor result = gradient;
      if (const double count = context->saved_data["count"].toDouble(); count > 0) {
        const at::Tensor sums = at::stack({of_bias, of_weight});
        add_up(sums, *context);
        result = result - along_channels(sums[0] / count, input) -
                 centred * along_channels(sums[1] / count, input);
      }
      result = result / along_channels(variance + eps, input).sqrt();
      if (weight.defined()) {
        result = result * along_channels(weight, input);
      }
      gradients[0] = result.to(input.scalar_type());
    }
    if (weight.defined()) {
      gradients[1] = of_weight;  // autograd converts it to the weight's dtype
    }
    if (context->saved_data["has_bias"].toBool()) {
      gradients[2] = of_bias;
    }
    return gradients;
  }

 private:
  // Over the ranks, if the statistics were.
  static void add_up(const at::Tensor& sums, autograd::AutogradContext& context) {
    if (const auto found = context.saved_data.find("group"); found != context.saved_data.end()) {
      all_reduce(sums,
                 c10::static_intrusive_pointer_cast<c10d::ProcessGroup>(found->second.toCapsule()));
    }
  }
};

void check(const at::Tensor& input, const BatchNormTensors& tensors, const ProcessGroupPtr& group,
           const SyncBatchNormOptions& options) {
  TORCH_CHECK(input.defined(), "the input is undefined");
  TORCH_CHECK(input.dim() >= 2 && input.dim() <= 5, "the input has ", input.dim(), " dimensions");
  TORCH_CHECK(input.is_floating_point(), "the input is of ", input.scalar_type());
  for (const at::Tensor& tensor :
       {tensors.weight, tensors.bias, tensors.running_mean, tensors.running_var}) {
    if (tensor.defined()) {
      TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) == input.size(1), "expected [", input.size(1),
                  "], got ", tensor.sizes());
      TORCH_CHECK(tensor.dtype() == input.dtype() || tensor.dtype() == at::kFloat, "expected ",
                  input.dtype(), " or float32, got ", tensor.dtype());
      TORCH_CHECK(tensor.device() == input.device(), "expected a tensor on ", input.device());
    }
  }
  TORCH_CHECK(tensors.running_mean.defined() == tensors.running_var.defined(),
              "running mean and variance are there both or neither");
  TORCH_CHECK(options.eps > 0, "eps must be greater than 0");
  TORCH_CHECK(group, "the group is null");
}

class Module : public BatchNorm {
 public:
  Module(const BatchNormOptions& options, ProcessGroupPtr group)
      : BatchNorm(options), group_(std::move(group)) {
    TORCH_CHECK(group_, "the group is null");
  }

  at::Tensor forward(const at::Tensor& input) override {
    SyncBatchNormOptions now{.training = is_training(), .eps = options().eps};
    if (is_training() && num_batches_tracked.defined()) {
      const at::NoGradGuard no_grad;
      num_batches_tracked += 1;
      now.momentum = options().momentum.value_or(1 / num_batches_tracked.item<double>());
    }
    return sync_batch_norm(input, {weight, bias, running_mean, running_var}, group_, now);
  }

 private:
  ProcessGroupPtr group_;
};

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& input, const BatchNormTensors& tensors,
                           const ProcessGroupPtr& group, const SyncBatchNormOptions& options) {
  check(input, tensors, group, options);
  const auto if_defined = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return Normalize::apply(input, if_defined(tensors.weight), if_defined(tensors.bias), tensors,
                          group, options);
}

std::shared_ptr<BatchNorm> make_sync_batch_norm(const BatchNormOptions& options,
                                                ProcessGroupPtr group) {
  return std::make_shared<Module>(options, std::move(group));
}

}  // namespace ddp
