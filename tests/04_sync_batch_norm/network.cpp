#include <ATen/ATen.h>

#include <functional>
#include <memory>

#include "grader/compare.h"
#include "grader/scenario.h"
#include "grader/settings.h"
#include "scenarios.h"

// The layer in a model trained with data parallelism.

namespace ddp::testing {

namespace {

constexpr std::int64_t kFilters = 4;
constexpr std::int64_t kHidden = 6;
constexpr std::int64_t kSamples = 6;  // of each rank
constexpr int kSteps = 5;
constexpr double kLearningRate = 0.03;

using Modules = std::vector<NormModule>;

// libtorch's own layer.
struct LocalBatchNorm : BatchNorm {
  using BatchNorm::BatchNorm;
  at::Tensor forward(const at::Tensor& input) override {
    return at::batch_norm(input, weight, bias, running_mean, running_var, true, 0.1, 1e-5, false);
  }
};

Modules modules_by(const std::function<NormModule(const BatchNormOptions& options)>& make) {
  return {make({.num_features = kFilters}), make({.num_features = kHidden}),
          make({.num_features = kHidden})};
}

// A convolution, the same normalization twice, then fully connected layers, the last with a
// normalization of its own: a small network in which some layers have equal sizes. It is smooth, so
// that rounding cannot cross a kink.
at::Tensor output_of(const at::Tensor& images, const std::vector<at::Tensor>& weights,
                     const Modules& modules) {
  at::Tensor x = at::tanh(modules[0]->forward(at::conv2d(images, weights[0])));
  x = at::tanh(modules[0]->forward(at::conv2d(x, weights[1])));  // the same layer again
  x = modules[1]->forward(at::matmul(x.flatten(1), weights[2]));
  return modules[2]->forward(at::matmul(at::tanh(x), weights[3]));
}

// On a shard of data for so many ranks; `average`: a gradient over all shards. Returns the state then,
// parameters first.
std::vector<at::Tensor> trained(const Modules& modules, int ranks,
                                const std::function<at::Tensor(const at::Tensor& whole)>& shard,
                                const std::function<void(const at::Tensor& gradient)>& average) {
  const std::vector<at::Tensor> weights = {random_numbers({kFilters, 2, 2, 2}, 1) * 0.5,
                                           random_numbers({kFilters, kFilters, 2, 2}, 2) * 0.3,
                                           random_numbers({kFilters * 4, kHidden}, 3) * 0.3,
                                           random_numbers({kHidden, kHidden}, 4) * 0.4};
  std::vector<at::Tensor> parameters = weights;
  for (const NormModule& module : modules) {
    parameters.insert(parameters.end(), {module->weight, module->bias});
  }
  std::vector<at::Tensor> state = parameters;
  for (const NormModule& module : modules) {
    state.insert(state.end(), {module->running_mean, module->running_var});
  }
  for (int step = 0; step < kSteps; ++step) {
    for (const at::Tensor& parameter : parameters) {
      parameter.set_requires_grad(true);
      parameter.mutable_grad().reset();
    }
    const at::Tensor images = random_numbers({kSamples * ranks, 2, 4, 4}, 20 + step) + 0.5 * step;
    const at::Tensor targets = random_numbers({kSamples * ranks, kHidden}, 30 + step);
    (output_of(shard(images), weights, modules) - shard(targets)).square().mean().backward();
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parameters) {
      average(parameter.grad());
      parameter.sub_(parameter.grad() * kLearningRate);
    }
  }
  return state;
}

// Hands in the state after training: "trained".
void train_together(Uses& uses) {
  tell_edge_case(uses.client(), kFloat64);
  Client& client = uses.client();
  const std::vector<at::Tensor> state = trained(
      modules_by(
          [&](const BatchNormOptions& options) { return uses.module(options, at::kDouble); }),
      client.world().ranks,
      [&](const at::Tensor& whole) { return whole.narrow(0, kSamples * client.rank(), kSamples); },
      [&](const at::Tensor& gradient) { all_reduce(gradient, uses.group(), ReduceOp::kAverage); });
  for (std::size_t i = 0; i < state.size(); ++i) {
    client.value("trained", state[i], static_cast<std::int64_t>(i));
  }
}

// The same in one process.
std::vector<at::Tensor> train_alone(int ranks) {
  return trained(
      modules_by([](const BatchNormOptions& options) {
        const NormModule module = std::make_shared<LocalBatchNorm>(options);
        module->to(at::kDouble);
        return module;
      }),
      ranks, [](const at::Tensor& whole) { return whole; }, [](const at::Tensor&) {});
}

}  // namespace

std::vector<Scenario> networks() {
  return with_ranks({2, 4}, "a network", "training_on_many_ranks_is_training_on_one",
                    train_together);
}

Finding network_is_trained_as_by_one(const Evidence& evidence) {
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
          return result.difference();
        }
      }
    }
  }
  return "";
}

}  // namespace ddp::testing
