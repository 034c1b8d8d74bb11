#include "support/gradient_checks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "support/compare.h"

namespace ddp::testing {

namespace {

constexpr std::uint64_t kOtherSeeds = 1000;
constexpr int kSteps = 5;
constexpr double kLearningRate = 0.1;

// float64: far below any real error, far above rounding. Otherwise each step may add its gradient's
// tolerance and a rounding of the parameter; the factor 16 allows for the growth of earlier errors
// in later steps.
double parameter_tolerance(const at::Tensor& parameter, double largest_gradient, int world_size) {
  if (parameter.scalar_type() == at::kDouble) {
    return 1e-11;
  }
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
  const double largest = parameter.detach().abs().max().item<double>();
  return 16 * kSteps * kEpsilon * (kLearningRate * (world_size + 2) * largest_gradient + largest);
}

void sgd_step(const std::vector<NamedTensor>& parameters) {
  for (const auto& [name, parameter] : parameters) {
    if (parameter.grad().defined()) {
      parameter.variable_data().sub_(parameter.grad(), kLearningRate);
    }
  }
}

at::TensorOptions float64_on_device() {
  return at::TensorOptions(at::kDouble).device(settings().device);
}

}  // namespace

void expect_state_of_rank_0(Rank& rank, ToyKind kind, at::ScalarType dtype,
                            const MakeSynchronizer& make) {
  ToyOptions mine = toy_options(rank, dtype);
  mine.seed += kOtherSeeds * rank.rank();
  const auto reference = make_toy_model(kind, toy_options(rank, dtype));
  const auto model = make_toy_model(kind, mine);
  rank.name(model->named_parameters());
  rank.name(model->named_buffers());
  const auto expect_same = [&](const std::vector<NamedTensor>& actual,
                               const std::vector<NamedTensor>& expected) {
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const std::string name = actual[i].name + " after construction (model: " + to_string(kind) +
                               ", " + c10::getDtypeNames(dtype).first +
                               "), compared with rank 0's,";
      EXPECT_TRUE(
          is_bitwise_equal({name, rank.world_size()}, actual[i].tensor, expected[i].tensor));
    }
  };
  std::vector<const void*> storage;
  for (const NamedTensor& parameter : model->named_parameters()) {
    storage.push_back(parameter.tensor.const_data_ptr());
  }

  const auto synchronizer =
      make(tensors_of(model->named_parameters()), tensors_of(model->named_buffers()), rank.group());

  expect_same(model->named_parameters(), reference->named_parameters());
  expect_same(model->named_buffers(), reference->named_buffers());
  for (std::size_t i = 0; i < storage.size(); ++i) {
    EXPECT_EQ(storage[i], model->named_parameters()[i].tensor.const_data_ptr())
        << model->named_parameters()[i].name
        << " has moved to other memory: an optimizer that was made before would miss it";
  }
}

void expect_mean_gradients(const Trainee& trainee, Oracle& oracle, int world_size) {
  const auto expected = oracle.gradients(0, trainee.rank);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, parameter] = trainee.parameters[i];
    const Subject subject{gradient_name(name, trainee.kind, parameter.scalar_type()), world_size,
                          expected[i].local};
    if (!expected[i].mean.defined()) {
      EXPECT_TRUE(
          is_close(subject, or_zero(parameter.grad(), parameter), at::zeros_like(parameter), 0.0));
      continue;
    }
    EXPECT_TRUE(is_close(subject, parameter.grad(), expected[i].mean,
                         gradient_tolerance(expected[i], world_size)));
  }
}

void expect_mean_gradients(Rank& rank, ToyKind kind, at::ScalarType dtype,
                           const MakeSynchronizer& make) {
  Trainee trainee(rank, kind, toy_options(rank, dtype), make);
  Oracle oracle(kind, trainee.options, rank.world_size());
  trainee.backward(0);
  trainee.synchronizer->finish();
  expect_mean_gradients(trainee, oracle, rank.world_size());
}

void expect_mean_of_transposed(Rank& rank, const MakeSynchronizer& make) {
  const auto options = float64_on_device();
  const at::Tensor weight = at::ones({3, 2}, options).t().set_requires_grad(true);
  rank.name({{"transposed weight", weight}});
  const auto synchronizer = make({weight}, {}, rank.group());
  (weight * (rank.rank() + 1)).sum().backward();
  synchronizer->finish();
  EXPECT_TRUE(is_close({"the gradient of a transposed weight", rank.world_size(),
                        at::full({2, 3}, rank.rank() + 1.0, options)},
                       weight.grad(), at::full({2, 3}, (rank.world_size() + 1) / 2.0, options),
                       1e-12));
}

void expect_bitwise_equal_gradients(Rank& rank, ToyKind kind, at::ScalarType dtype,
                                    const MakeSynchronizer& make) {
  Trainee trainee(rank, kind, toy_options(rank, dtype), make);
  trainee.backward(0);
  trainee.synchronizer->finish();
  for (const auto& [name, parameter] : trainee.parameters) {
    const at::Tensor mine =
        at::scalar_tensor(fingerprint(or_zero(parameter.grad(), parameter)), at::kLong);
    const at::Tensor all = all_gather(mine.to(settings().device), rank.group());
    EXPECT_TRUE(all.eq(all[0]).all().item<bool>())
        << gradient_name(name, kind, dtype) << " has not the same bits on all ranks";
  }
}

void expect_oracle_training(Rank& rank, ToyKind kind, at::ScalarType dtype,
                            const MakeSynchronizer& make) {
  Trainee trainee(rank, kind, toy_options(rank, dtype), make);
  Oracle oracle(kind, trainee.options, rank.world_size());
  double largest_gradient = 0;
  for (int step = 0; step < kSteps; ++step) {
    clear_gradients(trainee.parameters, /*to_none=*/step % 2 == 1);
    trainee.backward(step);
    trainee.synchronizer->finish();
    sgd_step(trainee.parameters);
    for (const Oracle::Gradient& gradient : oracle.gradients(step, rank.rank())) {
      if (gradient.mean.defined()) {
        largest_gradient = std::max(largest_gradient, gradient.magnitude.max().item<double>());
      }
    }
    oracle.sgd_step(kLearningRate);
  }
  const auto expected = oracle.trainable_parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor& parameter = trainee.parameters[i].tensor;
    EXPECT_TRUE(is_close({expected[i].name + " after " + std::to_string(kSteps) +
                              " steps of SGD (model: " + to_string(kind) + ", " +
                              c10::getDtypeNames(dtype).first + ")",
                          rank.world_size()},
                         parameter.detach(), expected[i].tensor.detach(),
                         parameter_tolerance(parameter, largest_gradient, rank.world_size())));
  }
}

void expect_accumulated_gradient(Rank& rank, const MakeSynchronizer& make) {
  const auto options = float64_on_device();
  const at::Tensor weight = at::ones({4}, options).set_requires_grad(true);
  rank.name({{"accumulated weight", weight}});
  const auto synchronizer = make({weight}, {}, rank.group());
  {
    const NoSync scope(*synchronizer);
    (weight * (10.0 + rank.rank())).sum().backward();
    synchronizer->finish();
    EXPECT_TRUE(is_close({"the gradient inside a NoSync scope", rank.world_size()}, weight.grad(),
                         at::full({4}, 10.0 + rank.rank(), options), 0.0));
  }
  (weight * (1.0 + rank.rank())).sum().backward();
  synchronizer->finish();
  synchronizer->finish();
  EXPECT_TRUE(is_close({"the gradient accumulated over two micro-batches, the first inside NoSync,",
                        rank.world_size(), at::full({4}, 11.0 + 2 * rank.rank(), options)},
                       weight.grad(), at::full({4}, 11.0 + (rank.world_size() - 1), options),
                       1e-12));
}

}  // namespace ddp::testing
