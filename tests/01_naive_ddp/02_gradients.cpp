#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "support/compare.h"
#include "support/grading.h"
#include "support/oracle.h"
#include "trainee.h"

// What the gradients are, and the parameters that follow from them.

namespace ddp::testing {

namespace {

// A gradient that no rank has may stay undefined or become zero.
at::Tensor or_zero(const at::Tensor& gradient, const at::Tensor& like) {
  return gradient.defined() ? gradient : at::zeros_like(like);
}

void expect_oracle_gradients(Trainee& trainee, Oracle& oracle, ToyKind kind, int world_size) {
  const auto expected = oracle.gradients(0, trainee.rank);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, parameter] = trainee.parameters[i];
    const Subject subject{gradient_name(name, kind, parameter.scalar_type()), world_size,
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

// A gradient has its parameter's memory layout, which need not be row by row.
void expect_transposed_gradient(Rank& rank) {
  const auto on_device = at::TensorOptions(at::kDouble).device(settings().device);
  const at::Tensor weight = at::ones({3, 2}, on_device).t().set_requires_grad(true);
  rank.name({{"transposed weight", weight}});
  const auto synchronizer = make_naive_ddp({weight}, {}, rank.group());
  (weight * (rank.rank() + 1)).sum().backward();
  synchronizer->finish();
  EXPECT_TRUE(is_close({"the gradient of a transposed weight", rank.world_size(),
                        at::full({2, 3}, rank.rank() + 1.0, on_device)},
                       weight.grad(), at::full({2, 3}, (rank.world_size() + 1) / 2.0, on_device),
                       1e-12));
}

// Two micro-batches with half the loss each, the first inside NoSync, and finish() called once too
// often each time: the sum of the two, averaged once.
void expect_accumulated_gradient(Rank& rank) {
  const auto on_device = at::TensorOptions(at::kDouble).device(settings().device);
  const at::Tensor weight = at::ones({4}, on_device).set_requires_grad(true);
  rank.name({{"accumulated weight", weight}});
  const auto synchronizer = make_naive_ddp({weight}, {}, rank.group());
  {
    const NoSync scope(*synchronizer);
    (weight * (10.0 + rank.rank())).sum().backward();
    synchronizer->finish();
    EXPECT_TRUE(is_close({"the gradient inside a NoSync scope", rank.world_size()}, weight.grad(),
                         at::full({4}, 10.0 + rank.rank(), on_device), 0.0));
  }
  (weight * (1.0 + rank.rank())).sum().backward();
  synchronizer->finish();
  synchronizer->finish();
  EXPECT_TRUE(is_close({"the gradient accumulated over two micro-batches, the first inside NoSync,",
                        rank.world_size(), at::full({4}, 11.0 + 2 * rank.rank(), on_device)},
                       weight.grad(), at::full({4}, 11.0 + (rank.world_size() - 1), on_device),
                       1e-12));
}

const GradedTest kMean{
    {.name = "gradients_are_the_mean_over_ranks",
     .points = 3,
     .hint = "After finish() every trainable parameter's gradient is the sum over the ranks "
             "divided by the world size, in the parameter's own precision."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          for (const ToyKind kind : all_toy_models()) {
            Trainee trainee(rank, kind, toy_options(rank, dtype));
            Oracle oracle(kind, trainee.options, rank.world_size());
            trainee.backward(0);
            trainee.synchronizer->finish();
            expect_oracle_gradients(trainee, oracle, kind, rank.world_size());
          }
        }
        expect_transposed_gradient(rank);
        expect_accumulated_gradient(rank);
      });
    }};

const GradedTest kBitwise{
    {.name = "gradients_are_bitwise_equal_across_ranks",
     .points = 1,
     .hint = "All ranks must end with the very same bits, or their parameters drift apart. Let "
             "every rank do the same arithmetic on the same reduced values."},
    [] {
      run_worlds({2, 3, 4}, [](Rank& rank) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          Trainee trainee(rank, ToyKind::kMlp, toy_options(rank, dtype));
          trainee.backward(0);
          trainee.synchronizer->finish();
          for (const auto& [name, parameter] : trainee.parameters) {
            const at::Tensor mine =
                at::scalar_tensor(fingerprint(or_zero(parameter.grad(), parameter)), at::kLong);
            const at::Tensor all = all_gather(mine.to(settings().device), rank.group());
            EXPECT_TRUE(all.eq(all[0]).all().item<bool>())
                << gradient_name(name, ToyKind::kMlp, dtype)
                << " has not the same bits on all ranks";
          }
        }
      });
    }};

constexpr int kSteps = 5;
constexpr double kLearningRate = 0.1;

// float64: far below any real error, far above rounding. Otherwise each step may add its gradient's
// tolerance and a rounding of the parameter; 16 for what earlier errors become in the steps that
// follow.
double parameter_tolerance(const at::Tensor& parameter, double largest_gradient, int world_size) {
  if (parameter.scalar_type() == at::kDouble) {
    return 1e-11;
  }
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
  const double largest = parameter.detach().abs().max().item<double>();
  return 16 * kSteps * kEpsilon * (kLearningRate * (world_size + 2) * largest_gradient + largest);
}

void expect_oracle_training(Rank& rank, ToyKind kind, at::ScalarType dtype) {
  Trainee trainee(rank, kind, toy_options(rank, dtype));
  Oracle oracle(kind, trainee.options, rank.world_size());
  double largest_gradient = 0;
  for (int step = 0; step < kSteps; ++step) {
    trainee.clear_gradients(/*to_none=*/step % 2 == 1);
    trainee.backward(step);
    trainee.synchronizer->finish();
    const at::NoGradGuard no_grad;
    for (const auto& [name, parameter] : trainee.parameters) {
      if (parameter.grad().defined()) {
        parameter.variable_data().sub_(parameter.grad(), kLearningRate);
      }
    }
    const at::AutoGradMode with_gradients(true);
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

const GradedTest kTraining{
    {.name = "five_sgd_steps_end_at_the_oracle",
     .points = 2,
     .hint = "One step works, several do not? Ask the parameter for its gradient anew in every "
             "finish(): between steps it may be set to none, and is then another tensor."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          expect_oracle_training(rank, kind, at::kDouble);
          expect_oracle_training(rank, kind, at::kFloat);
        }
      });
    }};

// Parameter i is used by one rank only, another one in every step; the last parameter by nobody.
// The gradient of sum(x * parameter) is x, so the mean over the ranks is x / world size, whoever
// the user was.
void expect_zeros_counted(Rank& rank) {
  const int world_size = rank.world_size();
  const auto on_device = at::TensorOptions(at::kDouble).device(settings().device);
  std::vector<NamedTensor> parameters;
  for (int i = 0; i <= world_size; ++i) {
    parameters.push_back(
        {"parameter " + std::to_string(i), at::ones({3 + i}, on_device).set_requires_grad(true)});
  }
  rank.name(parameters);
  const auto synchronizer = make_naive_ddp(tensors_of(parameters), {}, rank.group());
  synchronizer->finish();  // before any backward: nothing is ready anywhere, which does no harm
  for (int step = 0; step < 3; ++step) {
    for (const NamedTensor& parameter : parameters) {
      parameter.tensor.mutable_grad() = at::Tensor();
    }
    const auto values_of = [&](int i) {
      return at::arange(3 + i, on_device) + (1 + i + 10 * step);
    };
    const int used = (rank.rank() + step) % world_size;
    (parameters[used].tensor * values_of(used)).sum().backward();
    synchronizer->finish();
    for (int i = 0; i <= world_size; ++i) {
      const auto& [name, parameter] = parameters[i];
      const at::Tensor gradient =
          i == world_size ? or_zero(parameter.grad(), parameter) : parameter.grad();
      const at::Tensor expected =
          i == world_size ? at::zeros_like(parameter) : values_of(i) / world_size;
      EXPECT_TRUE(is_close(
          {"the gradient of " + name + ", which " + (i == world_size ? "no rank" : "one rank") +
               " used in step " + std::to_string(step) + ",",
           world_size},
          gradient, expected.detach(), 1e-12));
    }
  }
}

const GradedTest kMissing{
    {.name = "missing_gradients_count_as_zero",
     .points = 2,
     .hint = "A gradient that is undefined here may exist on another rank, which waits for you: "
             "take part with zeros, and keep the mean."},
    [] {
      run_worlds({1, 2, 3, 4}, expect_zeros_counted);
    }};

}  // namespace

}  // namespace ddp::testing
