#include "forms.h"
#include "support/gradient_checks.h"
#include "support/grading.h"

namespace ddp::testing {

namespace {

const GradedTest kConstruction{
    {.name = "construction_broadcasts_rank_0",
     .points = 2,
     .hint = "Broadcast everything the model consists of: parameters, frozen ones too, and "
             "buffers of every dtype. Autograd must not see it: work on parameter.detach()."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          expect_state_of_rank_0(rank, kind, at::kDouble, make_form(Form::kPerParameter));
          expect_state_of_rank_0(rank, kind, at::kFloat, make_form(Form::kPerParameter));
        }
        if (rank.world_size() > 1) {
          EXPECT_GT(rank.recorder().operations().size(), 0U) << "nothing was communicated";
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
