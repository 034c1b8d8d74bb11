// Correct, but unusual here: as in torch.nn.SyncBatchNorm, but for what is gathered: mean, variance (in
// place of the inverse deviation, which may say nothing of it) and count, in float32 unless the input is float64; backward reduces sum(g) and sum(g * (x -
// mean)). Operations are waited for by their futures.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "04_sync_batch_norm/sync_batch_norm.h"
#include "ddp/batch_norm.h"

namespace ddp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

at::Tensor spread(const at::Tensor& of_channels, const at::Tensor& input) {
  std::vector<std::int64_t> shape(input.dim(), 1);
  shape[1] = input.size(1);
  return wide(of_channels).view(shape);
}

std::vector<std::int64_t> all_but_channels(std::int64_t dims) {
  std::vector<std::int64_t> chosen;
  for (std::int64_t dim = 0; dim < dims; ++dim) {
    if (dim != 1) {
      chosen.push_back(dim);
    }
  }
  return chosen;
}

at::Tensor channel_sum(const at::Tensor& values) {
  return values.sum(all_but_channels(values.dim()));
}

struct Batch {
  at::Tensor mean, variance;
  double count = 0;
  at::Tensor invstd = {};
};

Batch batch_of(const at::Tensor& x) {
  const auto count = static_cast<double>(x.numel() / x.size(1));
  const at::Tensor mean = channel_sum(x) / std::max(count, 1.0);
  const at::Tensor variance = channel_sum((x - spread(mean, x)).square()) / std::max(count, 1.0);
  return {mean, variance, count};
}

// The ranks' means and variances, weighted by their counts; a rank without samples has weight 0.
Batch batch_of_all(const Batch& mine, const ProcessGroupPtr& group) {
  const std::int64_t channels = mine.mean.numel();
  at::Tensor message =
      at::cat({mine.mean, mine.variance, at::full({1}, mine.count, mine.mean.options())});
  at::Tensor all = at::empty({group->getSize() * message.numel()}, message.options());
  group->_allgather_base(all, message)->getFuture()->waitAndThrow();
  const auto parts = all.view({group->getSize(), -1}).split_with_sizes({channels, channels, 1}, 1);
  const at::Tensor weights = parts[2] / parts[2].sum();
  const auto count = parts[2].sum().item<double>();
  TORCH_CHECK(count > 1, "Expected more than 1 value per channel when training, got ", count);
  const at::Tensor mean = (parts[0] * weights).sum(0);
  const at::Tensor variance = ((parts[1] + (parts[0] - mean).square()) * weights).sum(0);
  return {mean, variance, count};
}

class SyncFunction : public torch::autograd::Function<SyncFunction> {
 public:
  static at::Tensor forward(AutogradContext* self, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias, const Batch& batch,
                            const ProcessGroupPtr& group) {
    self->save_for_backward({input, weight, batch.mean, batch.invstd});
    self->saved_data["group"] = group;
    self->saved_data["count"] = batch.count;
    const at::Tensor centred = wide(input) - spread(batch.mean, input);
    const at::Tensor output =
        centred * spread(wide(weight) * batch.invstd, input) + spread(bias, input);
    return output.to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* self, const variable_list& upstream) {
    const variable_list saved = self->get_saved_variables();
    const at::Tensor &input = saved[0], &mean = saved[2], &invstd = saved[3];
    const at::Tensor gradient = wide(upstream[0]);
    const at::Tensor centred = wide(input) - spread(mean, input);
    const at::Tensor sum_dy = channel_sum(gradient);
    const at::Tensor sum_dy_xmu = channel_sum(gradient * centred);
    at::Tensor of_input;
    if (self->needs_input_grad(0)) {
      at::Tensor reduced = at::cat({sum_dy, sum_dy_xmu});
      const at::IValue& group = self->saved_data["group"];
      if (!group.isNone() && group.toCustomClass<c10d::ProcessGroup>()) {
        std::vector<at::Tensor> tensors = {reduced};
        group.toCustomClass<c10d::ProcessGroup>()->allreduce(tensors)->getFuture()->waitAndThrow();
      }
      const double count = self->saved_data["count"].toDouble();
      const auto means = (count > 0 ? reduced / count : reduced * 0).chunk(2);
      of_input = (gradient - spread(means[0], input) -
                  centred * spread(invstd.square() * means[1], input)) *
                 spread(invstd * wide(saved[1]), input);
      of_input = of_input.to(input.scalar_type());
    }
    return {of_input, sum_dy_xmu * invstd, sum_dy, {}, {}};
  }
};

void check_tensor(const char* name, const at::Tensor& tensor, const at::Tensor& input) {
  TORCH_CHECK(!tensor.defined() || (tensor.dim() == 1 && tensor.size(0) == input.size(1)), name,
              " should have ", input.size(1), " elements");
  TORCH_CHECK(!tensor.defined() || tensor.scalar_type() == input.scalar_type() ||
                  tensor.scalar_type() == at::kFloat,
              name, " has the wrong dtype");
  TORCH_CHECK(!tensor.defined() || tensor.device() == input.device(), name,
              " is on another device");
}

class SyncModule : public BatchNorm {
 public:
  SyncModule(const BatchNormOptions& options, ProcessGroupPtr process_group)
      : BatchNorm(options), process_group_(std::move(process_group)) {
    TORCH_CHECK(process_group_ != nullptr, "SyncBatchNorm needs a process group");
  }

  at::Tensor forward(const at::Tensor& input) override {
    double exponential_average_factor = options().momentum.value_or(0.0);
    if (is_training() && options().track_running_stats) {
      num_batches_tracked.add_(1);
      if (!options().momentum.has_value()) {
        exponential_average_factor = 1.0 / num_batches_tracked.item<double>();
      }
    }
    SyncBatchNormOptions now;
    now.training = is_training();
    now.momentum = exponential_average_factor;
    now.eps = options().eps;
    return sync_batch_norm(input, {weight, bias, running_mean, running_var}, process_group_, now);
  }

 private:
  ProcessGroupPtr process_group_;
};

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& input, const BatchNormTensors& tensors,
                           const ProcessGroupPtr& group, const SyncBatchNormOptions& options) {
  TORCH_CHECK(input.defined() && input.is_floating_point(), "input should be floating point");
  TORCH_CHECK(input.dim() >= 2 && input.dim() <= 5, "expected 2D to 5D input");
  check_tensor("weight", tensors.weight, input);
  check_tensor("bias", tensors.bias, input);
  check_tensor("running_mean", tensors.running_mean, input);
  check_tensor("running_var", tensors.running_var, input);
  TORCH_CHECK(tensors.running_mean.defined() == tensors.running_var.defined(), "one is missing");
  TORCH_CHECK(options.eps > 0 && group != nullptr, "eps must be positive, and there is a group");
  const at::TensorOptions plain = input.options().requires_grad(false);
  Batch batch;
  {
    const at::NoGradGuard no_grad;
    if (!options.training && tensors.running_mean.defined()) {
      batch.mean = wide(tensors.running_mean).clone();
      batch.variance = wide(tensors.running_var);
    } else {
      batch = batch_of(wide(input.detach()));
    }
    if (options.training) {
      batch = batch_of_all(batch, group);
    }
    batch.invstd = (batch.variance + options.eps).rsqrt();
    if (options.training && tensors.running_mean.defined()) {
      tensors.running_mean.mul_(1 - options.momentum).add_(batch.mean * options.momentum);
      tensors.running_var.mul_(1 - options.momentum)
          .add_(batch.variance * (options.momentum * batch.count / (batch.count - 1)));
    }
  }
  return SyncFunction::apply(
      input, tensors.weight.defined() ? tensors.weight : at::ones({input.size(1)}, plain),
      tensors.bias.defined() ? tensors.bias : at::zeros({input.size(1)}, plain), batch,
      options.training ? group : ProcessGroupPtr());
}

std::shared_ptr<BatchNorm> make_sync_batch_norm(const BatchNormOptions& options,
                                                ProcessGroupPtr group) {
  return std::make_shared<SyncModule>(options, std::move(group));
}

}  // namespace ddp
