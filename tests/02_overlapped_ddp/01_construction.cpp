#include <ATen/ATen.h>

#include "overlapped.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/gradient_checks.h"
#include "support/grading.h"

namespace ddp::testing {

namespace {

// A tensor need not be row-major in memory: only its elements count.
void expect_transposed_state_of_rank_0(Rank& rank) {
  const auto options = at::TensorOptions(at::kFloat).device(settings().device);
  const auto state_of = [&](int owner, double first) {
    return (at::arange(6, options) + (first + 10 * owner)).view({3, 2}).t();
  };
  const at::Tensor weight = state_of(rank.rank(), 1).set_requires_grad(true);
  const at::Tensor buffer = state_of(rank.rank(), 100);
  rank.name({{"transposed weight", weight}, {"transposed buffer", buffer}});
  const auto synchronizer = overlapped()({weight}, {buffer}, rank.group());
  EXPECT_TRUE(is_bitwise_equal({"a transposed weight after construction", rank.world_size()},
                               weight.detach(), state_of(0, 1)));
  EXPECT_TRUE(is_bitwise_equal({"a transposed buffer after construction", rank.world_size()},
                               buffer, state_of(0, 100)));
}

// A broadcast alone is no synchronizer.
void expect_reduction_after_construction(Rank& rank) {
  Trainee trainee(rank, ToyKind::kMlp, toy_options(rank, at::kFloat), overlapped());
  rank.recorder().clear();
  trainee.backward(0);
  trainee.synchronizer->finish();
  EXPECT_FALSE(all_reduces(rank.recorder().operations()).empty())
      << "construction broadcast the state, but the first backward and finish() after it reduced "
         "nothing: what it returns must have hooks on the parameters, too";
}

const GradedTest kConstruction{
    {.name = "construction_broadcasts_rank_0",
     .points = 1,
     .hint = "As in stage 01: broadcast parameters, frozen ones too, and buffers of every dtype. "
             "Then register the hooks: a broadcast alone gives no points here."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          expect_state_of_rank_0(rank, kind, at::kDouble, overlapped());
          expect_state_of_rank_0(rank, kind, at::kFloat, overlapped());
        }
        expect_transposed_state_of_rank_0(rank);
        if (rank.world_size() > 1) {
          expect_reduction_after_construction(rank);
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
