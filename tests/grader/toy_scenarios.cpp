#include "grader/toy_scenarios.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>

#include "ddp/libtorch_versions.h"
#include "ddp/referee/access_watch.h"
#include "ddp/referee/client.h"
#include "grader/compare.h"
#include "grader/settings.h"

namespace ddp::testing {

std::vector<NamedTensor> trainable(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> unique;
  for (const NamedTensor& entry : parameters) {
    const bool seen = std::any_of(unique.begin(), unique.end(), [&](const NamedTensor& other) {
      return other.tensor.is_same(entry.tensor);
    });
    if (entry.tensor.requires_grad() && !seen) {
      unique.push_back(entry);
    }
  }
  return unique;
}

Oracle::Oracle(ToyKind kind, const ToyOptions& options, int world_size) : options_(options) {
  for (int rank = 0; rank < world_size; ++rank) {
    ToyOptions replica = options;
    replica.rank = rank;
    replicas_.push_back(make_toy_model(kind, replica));
  }
}

std::vector<NamedTensor> Oracle::state(int rank) const {
  auto state = trainable(replicas_[rank]->named_parameters());
  const auto buffers = replicas_[rank]->named_buffers();
  state.insert(state.end(), buffers.begin(), buffers.end());
  return state;
}

std::vector<Oracle::Gradient> Oracle::gradients(int step, int rank) {
  const auto world_size = static_cast<double>(replicas_.size());
  std::vector<Gradient> result(trainable(replicas_[0]->named_parameters()).size());
  for (std::size_t shard = 0; shard < replicas_.size(); ++shard) {
    Model& replica = *replicas_[shard];
    const auto parameters = trainable(replica.named_parameters());
    for (const NamedTensor& parameter : parameters) {
      parameter.tensor.mutable_grad() = at::Tensor();
    }
    toy_loss(replica, make_toy_batch(options_, static_cast<int>(shard), step)).backward();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& gradient = parameters[i].tensor.grad();
      if (!gradient.defined()) {
        continue;
      }
      Gradient& sum = result[i];
      if (static_cast<int>(shard) == rank) {
        sum.local = gradient.clone();
      }
      sum.mean = sum.mean.defined() ? sum.mean + gradient : gradient.clone();
      sum.magnitude = sum.magnitude.defined() ? sum.magnitude + gradient.abs() : gradient.abs();
    }
  }
  last_means_.clear();
  for (Gradient& gradient : result) {
    if (gradient.mean.defined()) {
      gradient.mean /= world_size;
      gradient.magnitude /= world_size;
    }
    last_means_.push_back(gradient.mean);
  }
  return result;
}

void Oracle::sgd_step(double learning_rate) {
  const at::NoGradGuard no_grad;
  for (const auto& replica : replicas_) {
    const auto parameters = trainable(replica->named_parameters());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (last_means_[i].defined()) {
        parameters[i].tensor.variable_data().sub_(last_means_[i], learning_rate);
      }
    }
  }
}

namespace {

constexpr std::uint64_t kOtherSeeds = 1000;
constexpr int kSteps = 5;
constexpr double kLearningRate = 0.1;

ToyOptions options_of(int rank, at::ScalarType dtype) {
  ToyOptions options;
  options.dtype = dtype;
  options.rank = rank;
  options.seed = settings().seed;
  return options;
}

void clear(const std::vector<NamedTensor>& parameters, bool to_none) {
  for (const auto& [name, parameter] : parameters) {
    if (to_none) {
      parameter.mutable_grad().reset();
    } else if (parameter.grad().defined()) {
      parameter.mutable_grad() = parameter.grad().detach().zero_();  // as torch::optim does
    }
  }
}

void train(Client& client, ToyKind kind, at::ScalarType dtype, int number, const Factory& make) {
  ToyOptions options = options_of(client.rank(), dtype);
  options.device = settings().device;
  ToyOptions own = options;
  own.seed += kOtherSeeds * client.rank();
  const auto model = make_toy_model(kind, own);
  const auto parameters = trainable(model->named_parameters());
  client.name(model->named_parameters());
  const auto synchronizer =
      make(client, tensors_of(model->named_parameters()), tensors_of(model->named_buffers()),
           make_group(client.shared_from_this()));
  for (int step = 0; step < kSteps; ++step) {
    clear(parameters, /*to_none=*/step % 2 == 1);
    const at::Tensor loss = toy_loss(*model, make_toy_batch(options, client.rank(), step));
    client.go_to({.phase = Phase::kBackward, .step = step, .model = number});
    loss.backward();
    client.go_to({.phase = Phase::kFinish, .step = step, .model = number});
    synchronizer->finish();
    client.go_to({.phase = Phase::kSetup, .step = step, .model = number});
    const OwnAccess unseen;
    for (const auto& [name, parameter] : parameters) {
      if (parameter.grad().defined()) {
        parameter.variable_data().sub_(parameter.grad(), kLearningRate);
      }
    }
  }
  auto trained = parameters;
  const auto buffers = model->named_buffers();
  trained.insert(trained.end(), buffers.begin(), buffers.end());
  for (std::size_t i = 0; i < trained.size(); ++i) {
    client.value("trained", trained[i].tensor, static_cast<std::int64_t>(i));
  }
}

// float64: far below any real error, far above rounding. Otherwise each step may add its gradient's
// tolerance and a rounding of the parameter; the factor 16 allows for the growth of earlier errors
// in later steps.
double tolerance_of(const at::Tensor& parameter, double largest_gradient, int world_size) {
  if (parameter.scalar_type() == at::kDouble) {
    return 1e-11;
  }
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
  const double largest = parameter.abs().max().item<double>();
  return 16 * kSteps * kEpsilon * (kLearningRate * (world_size + 2) * largest_gradient + largest);
}

Finding compare(const Evidence& evidence, ToyKind kind, at::ScalarType dtype, int number) {
  const int ranks = evidence.world.ranks;
  Oracle oracle(kind, options_of(0, dtype), ranks);
  double largest = 0;
  for (int step = 0; step < kSteps; ++step) {
    for (const Oracle::Gradient& gradient : oracle.gradients(step, 0)) {
      if (gradient.mean.defined()) {
        largest = std::max(largest, gradient.magnitude.max().item<double>());
      }
    }
    oracle.sgd_step(kLearningRate);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const auto expected = oracle.state(rank);
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind != EventKind::kValue || seen.place.model != number) {
        continue;
      }
      const NamedTensor& wanted = expected.at(seen.index);
      const std::string name = "rank " + std::to_string(rank) + ": " + wanted.name + " after " +
                               std::to_string(kSteps) + " steps of SGD (model: " + to_string(kind) +
                               ", " + dtype_name(dtype) + ")";
      const at::Tensor target = wanted.tensor.detach();
      const auto result =
          is_close({name, ranks}, seen.value, target, tolerance_of(target, largest, ranks));
      if (!result) {
        return result.difference();
      }
    }
  }
  return "";
}

}  // namespace

const std::vector<ToyKind>& same_order_models() {
  static const std::vector<ToyKind> kinds = [] {
    auto same = all_toy_models();
    std::erase(same, ToyKind::kRankBranch);
    return same;
  }();
  return kinds;
}

const ToyModels& plain_models() {
  static const ToyModels models = {{ToyKind::kMlp, ToyKind::kFrozenBias}, {at::kFloat}};
  return models;
}

Scenario toy_scenario(int ranks, const ToyModels& models, const Factory& make,
                      const std::string& charged_to) {
  Scenario scenario = {"small models with real layers, " + std::to_string(ranks) + " ranks",
                       {.ranks = ranks},
                       [models, make](Client& client) {
                         int number = 0;
                         for (const ToyKind kind : models.kinds) {
                           for (const at::ScalarType dtype : models.dtypes) {
                             train(client, kind, dtype, number++, make);
                           }
                         }
                       },
                       charged_to,
                       edge_cases_of(World{.ranks = ranks})};
  if (models.dtypes != std::vector{at::kFloat}) {
    scenario.edge_cases.insert(kDtype);
  }
  for (const auto& [kind, edge_case] :
       {std::pair(ToyKind::kTiedWeights, kTied), std::pair(ToyKind::kRankBranch, kUndefined),
        std::pair(ToyKind::kUnusedParameter, kUndefined),
        std::pair(ToyKind::kBatchNorm, kDtype)}) {  // its counter
    if (std::ranges::find(models.kinds, kind) != models.kinds.end()) {
      scenario.edge_cases.insert(edge_case);
    }
  }
  return scenario;
}

Predicate training_ends_at_the_oracle(const ToyModels& models) {
  return [models](const Evidence& evidence) -> Finding {
    int number = 0;
    for (const ToyKind kind : models.kinds) {
      for (const at::ScalarType dtype : models.dtypes) {
        if (Finding text = compare(evidence, kind, dtype, number++); !text.empty()) {
          return text;
        }
      }
    }
    return "";
  };
}

}  // namespace ddp::testing
