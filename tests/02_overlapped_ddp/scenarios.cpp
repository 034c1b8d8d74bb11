#include "scenarios.h"

#include "02_overlapped_ddp/overlapped_ddp.h"
#include "grader/toy_scenarios.h"
#include "grader/training_scenarios.h"

namespace ddp::testing {

namespace {

constexpr const char* kTrainingTest = "five_sgd_steps_end_at_the_oracle";

const SynchronizerUnderTest kSubject = {
    .make =
        [](Client&, const std::vector<at::Tensor>& parameters,
           const std::vector<at::Tensor>& buffers, const ProcessGroupPtr& group) {
          return make_overlapped_ddp(parameters, buffers, group);
        },
    .charged = {.mean = "gradients_are_the_mean_over_ranks",
                .accumulation = "micro_batches_communicate_once",
                .lifetime = "destruction_removes_the_hooks",
                .growth = "a_hundred_steps_do_not_grow",
                .errors = "mistakes_are_errors_and_hang_nobody"}};

}  // namespace

std::vector<Scenario> training() {
  return joined({training_scenarios(kSubject), recovery_scenarios(kSubject)});
}

std::vector<Scenario> small_models() {
  return {toy_scenario(2, plain_models(), kSubject.make, kTrainingTest)};
}

std::vector<Scenario> all_models() {
  return {toy_scenario(4, {same_order_models()}, kSubject.make, kTrainingTest)};
}

std::vector<Scenario> all_scenarios() { return joined({training(), small_models(), all_models()}); }

std::vector<Scenario> misuse() {
  return joined({misuse_scenarios(kSubject),
                 {sparse_made_dense(kSubject), refused_in_backward(kSubject)},
                 second_backward_scenarios(kSubject)});
}

std::vector<Scenario> destruction() { return destruction_scenarios(kSubject); }

}  // namespace ddp::testing
