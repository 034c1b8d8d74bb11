#include <ATen/ATen.h>

#include "forms.h"
#include "support/compare.h"
#include "support/gradient_checks.h"
#include "support/grading.h"

// The gradients, and the parameters after training with them.

namespace ddp::testing {

namespace {

const GradedTest kMean{
    {.name = "gradients_are_the_mean_over_ranks",
     .points = 3,
     .hint = "After finish() every trainable parameter's gradient is the sum over the ranks "
             "divided by the world size, in the parameter's own precision."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        const MakeSynchronizer make = make_form(Form::kPerParameter);
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          for (const ToyKind kind : all_toy_models()) {
            expect_mean_gradients(rank, kind, dtype, make);
          }
        }
        expect_mean_of_transposed(rank, make);
        expect_accumulated_gradient(rank, make);
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
          expect_bitwise_equal_gradients(rank, ToyKind::kMlp, dtype,
                                         make_form(Form::kPerParameter));
        }
      });
    }};

const GradedTest kTraining{
    {.name = "five_sgd_steps_end_at_the_oracle",
     .points = 2,
     .hint = "One step works, but not several? Get each parameter's gradient again in every "
             "finish(): between steps it may be set to none, and is then a different tensor."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          expect_oracle_training(rank, kind, at::kDouble, make_form(Form::kPerParameter));
          expect_oracle_training(rank, kind, at::kFloat, make_form(Form::kPerParameter));
        }
      });
    }};

// Each parameter but the last is used by one rank only, a different one in every step; the last
// parameter is never used. The gradient of sum(x * parameter) is x, so the mean over the ranks is x
// / world size, whichever rank used the parameter.
void expect_zeros_counted(Rank& rank) {
  const int world_size = rank.world_size();
  const auto on_device = at::TensorOptions(at::kDouble).device(settings().device);
  std::vector<NamedTensor> parameters;
  for (int i = 0; i <= world_size; ++i) {
    parameters.push_back(
        {"parameter " + std::to_string(i), at::ones({3 + i}, on_device).set_requires_grad(true)});
  }
  rank.name(parameters);
  const auto synchronizer =
      make_form(Form::kPerParameter)(tensors_of(parameters), {}, rank.group());
  synchronizer->finish();  // before any backward: nothing is ready anywhere, which is harmless
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
