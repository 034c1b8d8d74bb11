#include <ATen/ATen.h>

#include <functional>

#include "bodies.h"
#include "support/body.h"
#include "support/compare.h"
#include "support/settings.h"

// The layer in a model trained with data parallelism.

namespace ddp::testing {

namespace {

using Normalize = std::function<at::Tensor(const at::Tensor& input, std::size_t layer)>;

constexpr std::int64_t kFilters = 4;
constexpr std::int64_t kHidden = 6;
constexpr std::int64_t kChannelsOfLayers[] = {kFilters, kHidden, kHidden};
constexpr std::int64_t kSamples = 6;  // of each rank
constexpr int kSteps = 5;
constexpr double kLearningRate = 0.03;

// A convolution, the same normalization twice, then fully connected layers, the last with a
// normalization of its own: a small network in which some layers have equal sizes. It is smooth, so
// that rounding cannot cross a kink.
struct Network {
  explicit Network(Normalize by) : normalize(std::move(by)) {
    for (const at::Tensor& weight : weights) {
      weight.set_requires_grad(true);
    }
  }

  at::Tensor loss(const at::Tensor& images, const at::Tensor& targets) const {
    at::Tensor x = at::tanh(normalize(at::conv2d(images, weights[0]), 0));
    x = at::tanh(normalize(at::conv2d(x, weights[1]), 0));  // the same layer again
    x = normalize(at::matmul(x.flatten(1), weights[2]), 1);
    x = normalize(at::matmul(at::tanh(x), weights[3]), 2);
    return (x - targets).square().mean();
  }

  std::vector<at::Tensor> weights = {random_numbers({kFilters, 2, 2, 2}, 1) * 0.5,
                                     random_numbers({kFilters, kFilters, 2, 2}, 2) * 0.3,
                                     random_numbers({kFilters * 4, kHidden}, 3) * 0.3,
                                     random_numbers({kHidden, kHidden}, 4) * 0.4};
  Normalize normalize;
};

// Of each step, the shard of a rank, or all together.
struct Data {
  Data(int step, int ranks)
      : images(random_numbers({kSamples * ranks, 2, 4, 4}, 20 + step) + 0.5 * step),
        targets(random_numbers({kSamples * ranks, kHidden}, 30 + step)) {}
  at::Tensor images, targets;
};

void sgd_step(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters) {
    parameter.sub_(parameter.grad() * kLearningRate);
    parameter.mutable_grad().reset();
  }
}

// Hands in the state after training: "trained", parameters first.
void train_together(Uses& uses) {
  tell_rare(uses.client(), kFloat64);
  std::vector<NormModule> modules;
  for (const std::int64_t channels : kChannelsOfLayers) {
    modules.push_back(uses.module({.num_features = channels}, at::kDouble));
  }
  const Network network(
      [&](const at::Tensor& input, std::size_t layer) { return modules[layer]->forward(input); });
  std::vector<at::Tensor> state = network.weights;
  for (const NormModule& module : modules) {
    state.insert(state.end(), {module->weight, module->bias});
  }
  const std::vector<at::Tensor> parameters = state;
  for (const NormModule& module : modules) {
    state.insert(state.end(), {module->running_mean, module->running_var});
  }
  Client& client = uses.client();
  for (int step = 0; step < kSteps; ++step) {
    const Data data(step, client.world().ranks);
    const auto mine = [&](const at::Tensor& whole) {
      return whole.narrow(0, kSamples * client.rank(), kSamples);
    };
    network.loss(mine(data.images), mine(data.targets)).backward();
    for (const at::Tensor& parameter : parameters) {
      all_reduce(parameter.mutable_grad(), uses.group(), ReduceOp::kAverage);
    }
    sgd_step(parameters);
  }
  for (std::size_t i = 0; i < state.size(); ++i) {
    client.value("trained", state[i], static_cast<std::int64_t>(i));
  }
}

struct LocalLayer {
  at::Tensor weight, bias, mean, variance;
};

// In one process, with libtorch's own layer. Returns the same.
std::vector<at::Tensor> train_alone(int ranks) {
  std::vector<LocalLayer> layers;
  for (const std::int64_t channels : kChannelsOfLayers) {
    layers.push_back({at::ones({channels}, at::kDouble).set_requires_grad(true),
                      at::zeros({channels}, at::kDouble).set_requires_grad(true),
                      at::zeros({channels}, at::kDouble), at::ones({channels}, at::kDouble)});
  }
  const Network network([&](const at::Tensor& input, std::size_t layer) {
    const LocalLayer& by = layers[layer];
    return at::batch_norm(input, by.weight, by.bias, by.mean, by.variance, true, 0.1, 1e-5, false);
  });
  std::vector<at::Tensor> state = network.weights;
  for (const LocalLayer& layer : layers) {
    state.insert(state.end(), {layer.weight, layer.bias});
  }
  for (int step = 0; step < kSteps; ++step) {
    const Data data(step, ranks);
    network.loss(data.images, data.targets).backward();
    sgd_step({state.begin(), state.end()});
  }
  for (const LocalLayer& layer : layers) {
    state.insert(state.end(), {layer.mean, layer.variance});
  }
  return state;
}

}  // namespace

const std::vector<Body>& networks() {
  static const std::vector<Body> bodies =
      with_ranks({2, 4}, "a network", "training_on_many_ranks_is_training_on_one", train_together);
  return bodies;
}

std::string network_is_trained_as_by_one(const Evidence& evidence) {
  const std::vector<at::Tensor> expected = train_alone(evidence.world.ranks);
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind == EventKind::kValue && seen.text == "trained") {
        const at::Tensor right = expected.at(seen.index).detach();
        const std::string name = "rank " + std::to_string(rank) + ": after " +
                                 std::to_string(kSteps) + " steps of training, tensor " +
                                 std::to_string(seen.index) +
                                 " (4 weights, then weight and bias of 3 layers, then their "
                                 "running mean and variance)";
        const auto result =
            is_close({name, evidence.world.ranks}, seen.value, right, (1 + right.abs()) * 1e-8);
        if (!result) {
          return result.message();
        }
      }
    }
  }
  return "";
}

}  // namespace ddp::testing
