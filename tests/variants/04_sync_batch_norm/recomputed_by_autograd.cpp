// Correct, and unusual: no formula for backward. It repeats forward with the statistics as leaves
// of a small graph that autograd differentiates; a coalesced all-reduce sums the derivatives with
// respect to mean and variance. Forward also sends several tensors at once, and leaves the last
// step, with known statistics, to libtorch.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "04_sync_batch_norm/sync_batch_norm.h"
#include "ddp/batch_norm.h"

namespace ddp {
namespace {

namespace autograd = torch::autograd;
using Tensors = std::vector<at::Tensor>;

std::vector<std::int64_t> shape_along_channels(const at::Tensor& input) {
  std::vector<std::int64_t> shape(input.dim(), 1);
  shape[1] = input.size(1);
  return shape;
}

at::Tensor per_channel(const at::Tensor& values, const at::Tensor& input) {
  return values.to(at::kDouble).view(shape_along_channels(input));
}

std::vector<std::int64_t> reduced_dims(const at::Tensor& input) {
  std::vector<std::int64_t> dims = {0};
  for (std::int64_t dim = 2; dim < input.dim(); ++dim) {
    dims.push_back(dim);
  }
  return dims;
}

struct Statistics {
  at::Tensor mean, variance;
  double count = 0;
};

// An all-gather of three tensors in one operation, then all ranks' sums around the global mean.
Statistics statistics_of_all(const at::Tensor& x, c10d::ProcessGroup& group) {
  const auto dims = reduced_dims(x);
  const std::int64_t channels = x.size(1);
  const std::int64_t count = channels == 0 ? 0 : x.numel() / channels;
  const at::Tensor mean = x.sum(dims) / static_cast<double>(std::max<std::int64_t>(count, 1));
  const at::Tensor m2 = (x - mean.view(shape_along_channels(x))).square().sum(dims);
  Tensors inputs = {mean, m2, at::full({1}, static_cast<double>(count), x.options())};
  Tensors outputs;
  for (const at::Tensor& input : inputs) {
    outputs.push_back(at::empty({group.getSize() * input.numel()}, input.options()));
  }
  group.allgather_into_tensor_coalesced(outputs, inputs)->wait();
  const at::Tensor means = outputs[0].view({-1, channels});
  const at::Tensor counts = outputs[2].unsqueeze(1);
  const at::Tensor total = counts.sum();
  Statistics all = {(means * counts).sum(0) / total, {}, total.item<double>()};
  TORCH_CHECK(all.count > 1, "batch of ", all.count, " values a channel");
  const at::Tensor all_m2 =
      outputs[1].view({-1, channels}).sum(0) + ((means - all.mean).square() * counts).sum(0);
  all.variance = all_m2 / total;
  return all;
}

void move(at::Tensor running, const at::Tensor& to, double momentum) {
  running.copy_(at::lerp(running.to(at::kDouble), to, momentum));
}

// The output as a function of everything; nothing else is differentiated.
at::Tensor formula(const at::Tensor& x, const Tensors& parameters, double eps) {
  const auto along = [&](std::size_t i) { return parameters[i].view(shape_along_channels(x)); };
  return (x - along(0)) / (along(1) + eps).sqrt() * along(2) + along(3);
}

class Again : public autograd::Function<Again> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const Statistics& used, const SyncBatchNormOptions& options,
                            const ProcessGroupPtr& group) {
    context->save_for_backward({input, used.mean, used.variance, weight, bias});
    context->saved_data["count"] = used.count;
    context->saved_data["eps"] = options.eps;
    context->saved_data["group"] = options.training ? at::IValue(group) : at::IValue();
    const at::Tensor output =
        at::batch_norm(input.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble),
                       used.mean, used.variance, /*training=*/false, 0, options.eps, false);
    return output.to(input.scalar_type());
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& upstream) {
    const Tensors saved = context->get_saved_variables();
    const at::Tensor input = saved[0].detach();
    const at::Tensor x = input.to(at::kDouble, false, /*copy=*/true).set_requires_grad(true);
    Tensors inputs = {x};
    for (std::size_t i = 1; i < saved.size(); ++i) {
      inputs.push_back(
          saved[i].detach().to(at::kDouble, false, /*copy=*/true).set_requires_grad(true));
    }
    Tensors derivatives;
    {
      const at::AutoGradMode with_graph(true);
      const Tensors parameters(inputs.begin() + 1, inputs.end());
      const at::Tensor output = formula(x, parameters, context->saved_data["eps"].toDouble());
      derivatives = autograd::grad({output}, inputs, {upstream[0].to(at::kDouble)});
    }
    autograd::variable_list gradients(6);
    gradients[1] = derivatives[3];
    gradients[2] = derivatives[4];
    if (context->needs_input_grad(0)) {
      gradients[0] = through_statistics(x.detach(), inputs[1].detach(), derivatives, *context)
                         .to(input.scalar_type());
    }
    return gradients;
  }

 private:
  static at::Tensor through_statistics(const at::Tensor& x, const at::Tensor& mean,
                                       const Tensors& derivatives,
                                       autograd::AutogradContext& context) {
    const double count = context.saved_data["count"].toDouble();
    if (count == 0) {  // they do not depend on the input
      return derivatives[0];
    }
    Tensors by_statistics = {derivatives[1].clone(), derivatives[2].clone()};
    if (const at::IValue& group = context.saved_data["group"]; !group.isNone()) {
      group.toCustomClass<c10d::ProcessGroup>()->allreduce_coalesced(by_statistics)->wait();
    }
    return derivatives[0] + per_channel(by_statistics[0] / count, x) +
           per_channel(by_statistics[1] * (2 / count), x) * (x - per_channel(mean, x));
  }
};

Statistics statistics_for(const at::Tensor& input, const BatchNormTensors& tensors,
                          const ProcessGroupPtr& group, const SyncBatchNormOptions& options) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = input.to(at::kDouble);
  if (options.training) {
    Statistics all = statistics_of_all(x, *group);
    if (tensors.running_var.defined()) {
      move(tensors.running_mean, all.mean, options.momentum);
      move(tensors.running_var, all.variance * (all.count / (all.count - 1)), options.momentum);
    }
    return all;
  }
  if (tensors.running_var.defined()) {
    return {tensors.running_mean.to(at::kDouble).clone(),
            tensors.running_var.to(at::kDouble).clone(), 0};
  }
  const auto dims = reduced_dims(x);
  return {x.mean(dims), x.var(dims, /*unbiased=*/false),
          static_cast<double>(x.numel() / x.size(1))};
}

bool fits(const at::Tensor& tensor, const at::Tensor& input) {
  return !tensor.defined() || (tensor.dim() == 1 && tensor.size(0) == input.size(1) &&
                               (tensor.dtype() == input.dtype() || tensor.dtype() == at::kFloat) &&
                               tensor.device() == input.device());
}

class Layer : public BatchNorm {
 public:
  Layer(const BatchNormOptions& options, ProcessGroupPtr group)
      : BatchNorm(options), group_(std::move(group)) {}

  at::Tensor forward(const at::Tensor& input) override {
    const bool tracks = is_training() && options().track_running_stats;
    if (tracks) {
      num_batches_tracked.add_(1);
    }
    const auto cumulative = [&] { return 1 / num_batches_tracked.item<double>(); };
    const double momentum = !tracks ? 0 : options().momentum ? *options().momentum : cumulative();
    return sync_batch_norm(input, {weight, bias, running_mean, running_var}, group_,
                           {is_training(), momentum, options().eps});
  }

 private:
  ProcessGroupPtr group_;
};

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& input, const BatchNormTensors& tensors,
                           const ProcessGroupPtr& group, const SyncBatchNormOptions& options) {
  TORCH_CHECK(input.defined() && input.is_floating_point() && input.dim() >= 2 &&
                  input.dim() <= 5 && group && options.eps > 0,
              "sync_batch_norm: an argument does not fit");
  TORCH_CHECK(fits(tensors.weight, input) && fits(tensors.bias, input) &&
                  fits(tensors.running_mean, input) && fits(tensors.running_var, input) &&
                  tensors.running_mean.defined() == tensors.running_var.defined(),
              "sync_batch_norm: a tensor does not fit");
  const Statistics used = statistics_for(input, tensors, group, options);
  const auto plain = input.options().requires_grad(false);
  const at::Tensor weight =
      tensors.weight.defined() ? tensors.weight : at::ones({input.size(1)}, plain);
  const at::Tensor bias = tensors.bias.defined() ? tensors.bias : at::zeros({input.size(1)}, plain);
  return Again::apply(input, weight, bias, used, options, group);
}

std::shared_ptr<BatchNorm> make_sync_batch_norm(const BatchNormOptions& options,
                                                ProcessGroupPtr group) {
  TORCH_CHECK(group, "null group");
  return std::make_shared<Layer>(options, std::move(group));
}

}  // namespace ddp
