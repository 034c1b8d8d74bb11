// Correct, and unusual: no torch::autograd::Function, but a handmade node of the graph; loops over
// float64 with Welford's update; in backward the all-reduce runs while the gradients of weight and
// bias are computed.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cmath>

#include "04_sync_batch_norm/sync_batch_norm.h"
#include "ddp/batch_norm.h"
#include "ddp/libtorch_versions.h"

namespace ddp {
namespace {

namespace autograd = torch::autograd;

struct Channel {
  double mean = 0, m2 = 0, count = 0;

  void add(double value) {
    count += 1;
    const double delta = value - mean;
    mean += delta / count;
    m2 += delta * (value - mean);
  }

  void merge(double other_mean, double other_m2, double other_count) {
    if (other_count > 0) {
      const double both = count + other_count;
      const double delta = other_mean - mean;
      mean += delta * other_count / both;
      m2 += other_m2 + delta * delta * count * other_count / both;
      count = both;
    }
  }
};

using Channels = std::vector<Channel>;

// [N, C, ...] as [N, C, positions] in float64.
at::Tensor cube_of(const at::Tensor& values) {
  const at::Tensor wide = values.to(at::kDouble);
  const std::int64_t rest = values.size(0) * values.size(1);
  return wide.reshape({values.size(0), values.size(1), rest == 0 ? 0 : values.numel() / rest})
      .contiguous();
}

// f(sample, channel, position), one channel after another within a sample.
template <typename F>
void for_each(const at::Tensor& cube, F f) {
  for (std::int64_t n = 0; n < cube.size(0); ++n) {
    for (std::int64_t c = 0; c < cube.size(1); ++c) {
      for (std::int64_t p = 0; p < cube.size(2); ++p) {
        f(n, c, p);
      }
    }
  }
}

Channels channels_of(const at::Tensor& cube) {
  Channels channels(cube.size(1));
  const auto x = cube.accessor<double, 3>();
  for_each(cube, [&](auto n, auto c, auto p) { channels[c].add(x[n][c][p]); });
  return channels;
}

// One message per rank: pairs of mean and M, followed by the count.
Channels exchanged(const Channels& mine, c10d::ProcessGroup& group) {
  const auto size = static_cast<std::int64_t>(mine.size());
  at::Tensor message = at::zeros({2 * size + 1}, at::kDouble);
  for (std::int64_t c = 0; c < size; ++c) {
    message[2 * c] = mine[c].mean;
    message[2 * c + 1] = mine[c].m2;
    message[2 * size] = mine[c].count;
  }
  at::Tensor all = at::empty({group.getSize() * (2 * size + 1)}, at::kDouble);
  group._allgather_base(all, message)->wait();
  const auto theirs = all.accessor<double, 1>();
  Channels merged(size);
  for (std::int64_t rank = 0; rank < group.getSize(); ++rank) {
    const std::int64_t begin = rank * (2 * size + 1);
    for (std::int64_t c = 0; c < size; ++c) {
      merged[c].merge(theirs[begin + 2 * c], theirs[begin + 2 * c + 1], theirs[begin + 2 * size]);
    }
  }
  return merged;
}

std::vector<double> numbers_of(const at::Tensor& tensor, std::int64_t size, double otherwise) {
  if (!tensor.defined()) {
    return std::vector<double>(size, otherwise);
  }
  const at::Tensor wide = tensor.detach().to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + size};
}

void update(const at::Tensor& running, const std::vector<double>& batch, double momentum) {
  auto numbers = numbers_of(running, running.numel(), 0);
  for (std::size_t c = 0; c < batch.size(); ++c) {
    numbers[c] += momentum * (batch[c] - numbers[c]);
  }
  running.copy_(at::tensor(numbers, at::kDouble));
}

// What forward and backward share.
struct Norm {
  std::vector<double> mean, invstd;
  double count = 0;       // of the batch that the statistics depend on; 0: on none
  ProcessGroupPtr group;  // null: the statistics are this rank's own
};

class NormBackward : public autograd::Node {
 public:
  NormBackward(autograd::edge_list&& edges, const at::Tensor& input,
               const BatchNormTensors& tensors, Norm norm)
      : Node(std::move(edges)),
        input_(input, false),
        weight_(tensors.weight, false),
        norm_(std::move(norm)) {}

  autograd::variable_list apply(autograd::variable_list&& upstream) override {
    const at::Tensor input = input_.unpack();
    const at::Tensor weight = weight_.unpack();
    const at::Tensor x_cube = cube_of(input);
    const at::Tensor g_cube = cube_of(upstream[0].defined() ? upstream[0] : at::zeros_like(input));
    const auto x = x_cube.accessor<double, 3>();
    const auto g = g_cube.accessor<double, 3>();
    const std::int64_t size = input.size(1);
    const auto x_hat = [&](auto n, auto c, auto p) {
      return (x[n][c][p] - norm_.mean[c]) * norm_.invstd[c];
    };
    at::Tensor sums = at::zeros({size, 2}, at::kDouble);
    auto s = sums.accessor<double, 2>();
    for_each(x_cube, [&](auto n, auto c, auto p) {
      s[c][0] += g[n][c][p];
      s[c][1] += g[n][c][p] * x_hat(n, c, p);
    });
    const at::Tensor local = sums.clone();
    const bool for_input = task_should_compute_output(0);
    WorkPtr work;
    if (for_input && norm_.group) {
      work = all_reduce_async(sums, norm_.group);
    }
    autograd::variable_list gradients(3);
    gradients[1] = task_should_compute_output(1) ? local.select(1, 1) : at::Tensor();
    gradients[2] = task_should_compute_output(2) ? local.select(1, 0) : at::Tensor();
    if (work) {
      work->wait();
    }
    if (for_input) {
      const auto w = numbers_of(weight, size, 1);
      at::Tensor result = at::empty_like(x_cube);
      auto r = result.accessor<double, 3>();
      for_each(x_cube, [&](auto n, auto c, auto p) {
        const double through_statistics =
            norm_.count > 0 ? (s[c][0] + x_hat(n, c, p) * s[c][1]) / norm_.count : 0;
        r[n][c][p] = w[c] * norm_.invstd[c] * (g[n][c][p] - through_statistics);
      });
      gradients[0] = result.reshape(input.sizes()).to(input.scalar_type());
    }
    return gradients;
  }

  void release_variables() override {
    input_.reset_data();
    weight_.reset_data();
  }

 private:
  autograd::SavedVariable input_, weight_;
  Norm norm_;
};

Norm norm_of(const at::Tensor& cube, const BatchNormTensors& tensors, const ProcessGroupPtr& group,
             const SyncBatchNormOptions& options) {
  Norm norm;
  std::vector<double> variance;
  if (!options.training && tensors.running_mean.defined()) {
    norm.mean = numbers_of(tensors.running_mean, cube.size(1), 0);
    variance = numbers_of(tensors.running_var, cube.size(1), 0);
  } else {
    Channels channels = channels_of(cube);
    if (options.training) {
      channels = exchanged(channels, *group);
      norm.group = group;
    }
    std::vector<double> unbiased;
    for (const Channel& channel : channels) {
      TORCH_CHECK(!options.training || channel.count > 1, "there are not two values a channel");
      norm.count = channel.count;
      norm.mean.push_back(channel.mean);
      variance.push_back(channel.m2 / channel.count);
      unbiased.push_back(channel.m2 / (channel.count - 1));
    }
    if (options.training && tensors.running_mean.defined()) {
      update(tensors.running_mean, norm.mean, options.momentum);
      update(tensors.running_var, unbiased, options.momentum);
    }
  }
  for (const double v : variance) {
    norm.invstd.push_back(1 / std::sqrt(v + options.eps));
  }
  return norm;
}

at::Tensor normalized(const at::Tensor& input, const at::Tensor& cube, const Norm& norm,
                      const BatchNormTensors& tensors) {
  const auto w = numbers_of(tensors.weight, cube.size(1), 1);
  const auto b = numbers_of(tensors.bias, cube.size(1), 0);
  const auto x = cube.accessor<double, 3>();
  at::Tensor output = at::empty_like(cube);
  auto y = output.accessor<double, 3>();
  for_each(cube, [&](auto n, auto c, auto p) {
    y[n][c][p] = (x[n][c][p] - norm.mean[c]) * norm.invstd[c] * w[c] + b[c];
  });
  return output.reshape(input.sizes()).to(input.scalar_type());
}

void check(bool good, const char* what) { TORCH_CHECK(good, "sync_batch_norm: ", what); }

void check_arguments(const at::Tensor& input, const BatchNormTensors& tensors,
                     const ProcessGroupPtr& group, const SyncBatchNormOptions& options) {
  check(group != nullptr, "null group");
  check(options.eps > 0, "eps must be greater than 0");
  check(input.defined() && at::isFloatingType(input.scalar_type()), "undefined, or of integers");
  check(input.dim() >= 2 && input.dim() <= 5, "2 to 5 dimensions");
  check(!tensors.running_mean.defined() == !tensors.running_var.defined(), "one statistic only");
  for (const at::Tensor* tensor :
       {&tensors.bias, &tensors.weight, &tensors.running_var, &tensors.running_mean}) {
    if (tensor->defined()) {
      check(tensor->dim() == 1 && tensor->numel() == input.size(1), "not one number a channel");
      check(tensor->dtype() == at::kFloat || tensor->dtype() == input.dtype(), "wrong dtype");
      check(tensor->device() == input.device(), "wrong device");
    }
  }
}

class Layer : public BatchNorm {
 public:
  Layer(const BatchNormOptions& options, ProcessGroupPtr group)
      : BatchNorm(options), group_(std::move(group)) {
    check(group_ != nullptr, "null group");
  }

  at::Tensor forward(const at::Tensor& input) override {
    double momentum = 0;
    if (is_training() && options().track_running_stats) {
      const double batches = num_batches_tracked.item<double>() + 1;
      num_batches_tracked.fill_(batches);
      momentum = options().momentum ? *options().momentum : 1 / batches;
    }
    return sync_batch_norm(input, {this->weight, this->bias, this->running_mean, this->running_var},
                           group_, {is_training(), momentum, options().eps});
  }

 private:
  ProcessGroupPtr group_;
};

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& input, const BatchNormTensors& tensors,
                           const ProcessGroupPtr& group, const SyncBatchNormOptions& options) {
  check_arguments(input, tensors, group, options);
  at::Tensor output;
  Norm norm;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor cube = cube_of(input);
    norm = norm_of(cube, tensors, group, options);
    output = normalized(input, cube, norm, tensors);
  }
  if (autograd::compute_requires_grad(input, tensors.weight, tensors.bias)) {
    const OwnedNode node =
        make_node<NormBackward>(autograd::collect_next_edges(input, tensors.weight, tensors.bias),
                                input, tensors, std::move(norm));
    autograd::set_history(output, node);
  }
  return output;
}

std::shared_ptr<BatchNorm> make_sync_batch_norm(const BatchNormOptions& options,
                                                ProcessGroupPtr group) {
  return std::make_shared<Layer>(options, std::move(group));
}

}  // namespace ddp
