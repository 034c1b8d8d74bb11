#include "bodies.h"

#include "02_overlapped_ddp/overlapped_ddp.h"
#include "support/toy_bodies.h"
#include "support/training_bodies.h"

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

std::vector<Body> training() {
  return joined({training_bodies(kSubject), recovery_bodies(kSubject)});
}

std::vector<Body> small_models() {
  return {toy_body(2, plain_models(), kSubject.make, kTrainingTest)};
}

std::vector<Body> all_models() {
  return {toy_body(4, {same_order_models()}, kSubject.make, kTrainingTest)};
}

std::vector<Body> all_bodies() { return joined({training(), small_models(), all_models()}); }

std::vector<Body> misuse() {
  return joined({misuse_bodies(kSubject),
                 {sparse_made_dense(kSubject), refused_in_backward(kSubject)},
                 second_backward_bodies(kSubject)});
}

std::vector<Body> destruction() { return destruction_bodies(kSubject); }

}  // namespace ddp::testing
