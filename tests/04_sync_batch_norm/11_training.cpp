#include <ATen/ATen.h>

#include <functional>
#include <memory>

#include "ddp/batch_norm.h"
#include "norm_case.h"
#include "support/compare.h"
#include "support/grading.h"

// The layer in a model trained with data parallelism.

namespace ddp::testing {

namespace {

using Normalize = std::function<at::Tensor(const at::Tensor& input, std::size_t layer)>;

constexpr std::int64_t kFilters = 4;
constexpr std::int64_t kHidden = 6;
constexpr double kLearningRate = 0.03;

// A convolution, the same normalization twice, then fully connected layers, the last with a
// normalization of its own: a small network in which some layers have equal sizes. It is smooth, so
// that rounding cannot cross a kink.
struct Network {
  std::vector<at::Tensor> weights;  // of the convolutions and the fully connected layers
  Normalize normalize;

  at::Tensor loss(const at::Tensor& images, const at::Tensor& targets) const {
    at::Tensor x = at::tanh(normalize(at::conv2d(images, weights[0]), 0));
    x = at::tanh(normalize(at::conv2d(x, weights[1]), 0));  // the same layer again
    x = normalize(at::matmul(x.flatten(1), weights[2]), 1);
    x = normalize(at::matmul(at::tanh(x), weights[3]), 2);
    return (x - targets).square().mean();
  }
};

Network make_network() {
  Network network;
  network.weights = {random_numbers({kFilters, 2, 2, 2}, 20) * 0.5,
                     random_numbers({kFilters, kFilters, 2, 2}, 21) * 0.3,
                     random_numbers({kFilters * 4, kHidden}, 22) * 0.3,
                     random_numbers({kHidden, kHidden}, 23) * 0.4};
  for (const at::Tensor& weight : network.weights) {
    weight.set_requires_grad(true);
  }
  return network;
}

constexpr std::int64_t kChannelsOfLayers[] = {kFilters, kHidden, kHidden};

// Weight, bias, running mean and variance of each layer.
std::vector<BatchNormTensors> make_tensors() {
  const auto options = at::TensorOptions(at::kDouble).device(settings().device);
  std::vector<BatchNormTensors> layers;
  for (const std::int64_t channels : kChannelsOfLayers) {
    layers.push_back({.weight = at::ones({channels}, options).set_requires_grad(true),
                      .bias = at::zeros({channels}, options).set_requires_grad(true),
                      .running_mean = at::zeros({channels}, options),
                      .running_var = at::ones({channels}, options)});
  }
  return layers;
}

std::vector<at::Tensor> trainable_of(const Network& network,
                                     const std::vector<BatchNormTensors>& layers) {
  std::vector<at::Tensor> parameters = network.weights;
  for (const BatchNormTensors& layer : layers) {
    parameters.push_back(layer.weight);
    parameters.push_back(layer.bias);
  }
  return parameters;
}

void sgd_step(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters) {
    parameter.sub_(parameter.grad() * kLearningRate);
    parameter.mutable_grad() = at::Tensor();
  }
}

struct Batch {
  at::Tensor images, targets;
};

Batch whole_batch(int step, std::int64_t samples) {
  return {random_numbers({samples, 2, 4, 4}, 24 + step) + 0.5 * step,
          random_numbers({samples, kHidden}, 34 + step)};
}

// In one process, with libtorch's own layer.
void train_alone(const Network& network, const std::vector<BatchNormTensors>& layers, int steps,
                 std::int64_t samples) {
  for (int step = 0; step < steps; ++step) {
    const Batch batch = whole_batch(step, samples);
    network.loss(batch.images, batch.targets).backward();
    sgd_step(trainable_of(network, layers));
  }
}

// Each rank with its part of the batch, and the mean of their gradients.
void train_together(const Rank& rank, const Network& network,
                    const std::vector<BatchNormTensors>& layers, int steps,
                    std::int64_t samples_of_rank) {
  const auto parameters = trainable_of(network, layers);
  for (int step = 0; step < steps; ++step) {
    const Batch batch = whole_batch(step, samples_of_rank * rank.world_size());
    const auto mine = [&](const at::Tensor& whole) {
      return whole.narrow(0, samples_of_rank * rank.rank(), samples_of_rank);
    };
    network.loss(mine(batch.images), mine(batch.targets)).backward();
    for (const at::Tensor& parameter : parameters) {
      all_reduce(parameter.mutable_grad(), rank.group(), ReduceOp::kAverage);
    }
    sgd_step(parameters);
  }
}

void expect_equal_training(const Rank& rank, std::int64_t samples_of_rank) {
  constexpr int kSteps = 5;
  Network alone = make_network();
  auto reference = make_tensors();
  alone.normalize = [&](const at::Tensor& input, std::size_t layer) {
    const BatchNormTensors& t = reference[layer];
    return at::batch_norm(input, t.weight, t.bias, t.running_mean, t.running_var, true, 0.1, 1e-5,
                          false);
  };
  train_alone(alone, reference, kSteps, samples_of_rank * rank.world_size());

  Network network = make_network();
  std::vector<std::shared_ptr<BatchNorm>> modules;
  std::vector<BatchNormTensors> layers;
  for (const std::int64_t channels : kChannelsOfLayers) {
    modules.push_back(make_sync_batch_norm({.num_features = channels}, rank.group()));
    modules.back()->to(settings().device, at::kDouble);
    layers.push_back({modules.back()->weight, modules.back()->bias, modules.back()->running_mean,
                      modules.back()->running_var});
  }
  network.normalize = [&](const at::Tensor& input, std::size_t layer) {
    return modules[layer]->forward(input);
  };
  train_together(rank, network, layers, kSteps, samples_of_rank);

  const auto expected = trainable_of(alone, reference);
  const auto actual = trainable_of(network, layers);
  const auto expect_equal = [&](const std::string& what, const at::Tensor& one,
                                const at::Tensor& other) {
    const at::Tensor right = other.detach();
    EXPECT_TRUE(is_close({what, rank.world_size()}, one.detach(), right, (1 + right.abs()) * 1e-8));
  };
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expect_equal("after " + std::to_string(kSteps) + " steps of training, parameter " +
                     std::to_string(i) + " of the model",
                 actual[i], expected[i]);
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string of_layer = " of layer " + std::to_string(i) + " after training";
    expect_equal("the running mean" + of_layer, layers[i].running_mean, reference[i].running_mean);
    expect_equal("the running variance" + of_layer, layers[i].running_var,
                 reference[i].running_var);
  }
}

const GradedTest kTraining{
    {.name = "training_on_many_ranks_is_training_on_one",
     .points = 1,
     .hint =
         "Several layers, and one layer several times, go forward before any goes backward: "
         "what backward needs belongs to the graph, not to the module or a variable of its own."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        expect_equal_training(rank, 6);
        expect_equal_training(rank, 4);
      });
    }};

}  // namespace

}  // namespace ddp::testing
