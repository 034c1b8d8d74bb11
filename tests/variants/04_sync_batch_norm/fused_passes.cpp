// Correct, and unusual here: fast. Four passes over memory (channel_passes.h) in the place of some
// twenty tensor operations; channel_loops.h beside it has their loops.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "04_sync_batch_norm/sync_batch_norm.h"
#include "channel_passes.h"
#include "ddp/batch_norm.h"

namespace ddp {
namespace {

// --- Arguments ---

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

// --- Statistics. All of them are float64 [C] on the input's device. ---

struct Statistics {
  at::Tensor mean, variance;  // biased
  double count = 0;           // elements of each channel
};

/// Adds up those of all ranks (Chan, Golub, LeVeque 1983): ONE collective, 2C + 1 numbers of each.
/// Without a group they are this rank's own.
Statistics gather_statistics(const at::Tensor& mean, const at::Tensor& m2, std::int64_t count,
                             const ProcessGroupPtr& group) {
  const std::int64_t channels = mean.size(0);
  const at::Tensor mine =
      at::cat({mean, m2, at::full({1}, static_cast<double>(count), mean.options())});
  const at::Tensor all = group ? all_gather(mine, group) : mine.unsqueeze(0);  // [ranks, 2C + 1]
  const at::Tensor means = all.narrow(1, 0, channels);
  const at::Tensor m2s = all.narrow(1, channels, channels);
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);
  const at::Tensor total = counts.sum();
  const at::Tensor global_mean = (counts * means).sum(0) / total;
  const at::Tensor global_m2 = (m2s + counts * (means - global_mean).square()).sum(0);
  return {global_mean, global_m2 / total, total.item<double>()};
}

void update_running(const BatchNormTensors& tensors, const Statistics& batch, double momentum) {
  if (!tensors.running_mean.defined()) {
    return;
  }
  const at::Tensor unbiased = batch.variance * (batch.count / (batch.count - 1));
  tensors.running_mean.mul_(1 - momentum).add_(batch.mean.to(tensors.running_mean), momentum);
  tensors.running_var.mul_(1 - momentum).add_(unbiased.to(tensors.running_var), momentum);
}

// --- Forward and backward ---

/// Without gaps and in the same order of memory as the input.
at::Tensor dense(const at::Tensor& tensor, const at::Tensor& input) {
  return tensor.contiguous(input.suggest_memory_format());
}

at::Tensor or_ones(const at::Tensor& weight, const at::Tensor& like) {
  return weight.defined() ? weight.to(at::kDouble) : at::ones_like(like);
}

at::Tensor or_zeros(const at::Tensor& bias, const at::Tensor& like) {
  return bias.defined() ? bias.to(at::kDouble) : at::zeros_like(like);
}

/// Where the statistics come from decides what backward has to do.
enum class Source { kAllRanks, kOwnBatch, kRunning };

class SyncBatchNormFunction : public torch::autograd::Function<SyncBatchNormFunction> {
 public:
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  /// Weight and bias, which are among `tensors` too, are arguments because they get a gradient; as
  /// optional ones, because autograd takes no undefined tensors.
  static at::Tensor forward(Context* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& /*weight*/,
                            const std::optional<at::Tensor>& /*bias*/,
                            const BatchNormTensors& tensors, const ProcessGroupPtr& group,
                            const SyncBatchNormOptions& options) {
    const at::Tensor x = dense(input, input);
    const Source source = options.training                 ? Source::kAllRanks
                          : tensors.running_mean.defined() ? Source::kRunning
                                                           : Source::kOwnBatch;
    const Statistics batch = statistics_of(x, tensors, source, group);
    if (source == Source::kAllRanks) {
      TORCH_CHECK(batch.count > 1, "sync_batch_norm: the global batch has ", batch.count,
                  " elements a channel, but a variance needs at least 2");
      update_running(tensors, batch, options.momentum);
    }
    const at::Tensor invstd = batch.variance.add_(options.eps).rsqrt_();  // in its place
    context->save_for_backward({input, tensors.weight, tensors.bias, batch.mean, invstd});
    context->saved_data["source"] = static_cast<std::int64_t>(source);
    context->saved_data["count"] = batch.count;
    context->saved_data["group"] = group;
    return channels::normalize(x, batch.mean, invstd, or_ones(tensors.weight, invstd),
                               or_zeros(tensors.bias, invstd));
  }

  static Tensors backward(Context* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &bias = saved[2];
    const at::Tensor &mean = saved[3], &invstd = saved[4];
    const at::Tensor x = dense(input, input);
    const at::Tensor g = dense(gradients[0], input);
    const at::Tensor sums = channels::gradient_sums(g, x, mean);  // of this rank
    Tensors result(6);  // one for each argument of forward
    if (weight.defined()) {
      result[1] = (sums[1] * invstd).to(weight.scalar_type());
    }
    if (bias.defined()) {
      result[2] = sums[0].to(bias.scalar_type());
    }
    if (context->needs_input_grad(0)) {
      const at::Tensor means = mean_of_sums(context, sums);
      result[0] =
          channels::input_gradient(g, x, mean, invstd, or_ones(weight, invstd), means[0], means[1]);
    }
    return result;
  }

 private:
  static Statistics statistics_of(const at::Tensor& x, const BatchNormTensors& tensors,
                                  Source source, const ProcessGroupPtr& group) {
    if (source == Source::kRunning) {
      constexpr bool kNonBlocking = false, kCopy = true;  // the caller may change them
      return {tensors.running_mean.to(at::kDouble, kNonBlocking, kCopy),
              tensors.running_var.to(at::kDouble, kNonBlocking, kCopy)};
    }
    const auto [mean, m2] = channels::moments(x);
    return gather_statistics(mean, m2, x.numel() / x.size(1),
                             source == Source::kAllRanks ? group : nullptr);
  }

  /// The means over the batch that the statistics were taken from: ONE collective, 2C numbers of
  /// each rank, if that was the global one; zeros if they do not depend on the input.
  static at::Tensor mean_of_sums(Context* context, const at::Tensor& sums) {
    const auto source = static_cast<Source>(context->saved_data["source"].toInt());
    if (source == Source::kRunning) {
      return at::zeros_like(sums);
    }
    at::Tensor total = sums;
    if (source == Source::kAllRanks) {
      total = sums.clone();
      all_reduce(total, context->saved_data["group"].toCustomClass<c10d::ProcessGroup>());
    }
    return total / context->saved_data["count"].toDouble();
  }
};

class SyncBatchNorm : public BatchNorm {
 public:
  SyncBatchNorm(const BatchNormOptions& options, ProcessGroupPtr group)
      : BatchNorm(options), group_(std::move(group)) {}

  at::Tensor forward(const at::Tensor& input) override {
    const bool tracks = is_training() && options().track_running_stats;
    // The cumulative average gives the batch now counted the weight of one among all.
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
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return SyncBatchNormFunction::apply(input, optional(tensors.weight), optional(tensors.bias),
                                      tensors, group, options);
}

std::shared_ptr<BatchNorm> make_sync_batch_norm(const BatchNormOptions& options,
                                                ProcessGroupPtr group) {
  TORCH_CHECK(group, "make_sync_batch_norm: the process group is null");
  return std::make_shared<SyncBatchNorm>(options, std::move(group));
}

}  // namespace ddp
