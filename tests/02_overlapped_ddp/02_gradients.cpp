#include "overlapped.h"
#include "support/gradient_checks.h"
#include "support/grading.h"

// The gradients, and the parameters after training with them.

namespace ddp::testing {

namespace {

// Layers of two dtypes, one of a single element.
void expect_mean_of_mixed_dtypes(Rank& rank) {
  ChainModel model(rank, {{.elements = 5, .dtype = at::kDouble},
                          {.elements = 1, .dtype = at::kFloat},
                          {.elements = 7, .dtype = at::kFloat},
                          {.elements = 3, .dtype = at::kDouble}});
  const auto synchronizer = overlapped()(tensors_of(model.parameters()), {}, rank.group());
  model.loss(0).backward();
  synchronizer->finish();
  expect_chain_means(rank, model, 0, "(of a model of mixed dtypes)");
}

const GradedTest kMean{
    {.name = "gradients_are_the_mean_over_ranks",
     .points = 2,
     .hint = "After finish() every gradient is the sum over the ranks divided by the world size, "
             "in its own precision and with the same bits on all ranks."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          for (const ToyKind kind : same_order_models()) {
            expect_mean_gradients(rank, kind, dtype, overlapped());
          }
          expect_bitwise_equal_gradients(rank, ToyKind::kMlp, dtype, overlapped());
        }
        expect_mean_of_transposed(rank, overlapped());
        expect_mean_of_mixed_dtypes(rank);
      });
    }};

const GradedTest kTraining{
    {.name = "five_sgd_steps_end_at_the_oracle",
     .points = 2,
     .hint = "One step works, but not several? Between steps gradients are set to zero, or to none "
             "and are then different tensors. Get each parameter's gradient again in every step."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : same_order_models()) {
          expect_oracle_training(rank, kind, at::kDouble, overlapped());
          expect_oracle_training(rank, kind, at::kFloat, overlapped());
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
