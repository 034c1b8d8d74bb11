#include "bodies.h"

#include "02_overlapped_ddp/overlapped_ddp.h"
#include "support/misuse_bodies.h"
#include "support/toy_bodies.h"
#include "support/training_bodies.h"

namespace ddp::testing {

namespace {

const SynchronizerUnderTest kSubject = {
    .make = overlapped(),
    .charged = {.mean = "gradients_are_the_mean_over_ranks",
                .accumulation = "micro_batches_communicate_once",
                .lifetime = "destruction_removes_the_hooks",
                .growth = "a_hundred_steps_do_not_grow",
                .errors = "mistakes_are_errors_and_hang_nobody"}};

}  // namespace

Factory overlapped() {
  return
      [](Client&, const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
         const ProcessGroupPtr& group) { return make_overlapped_ddp(parameters, buffers, group); };
}

const std::vector<Body>& small_models() {
  static const std::vector<Body> bodies = {
      toy_body(2, plain_models(), overlapped(), "five_sgd_steps_end_at_the_oracle")};
  return bodies;
}

const std::vector<Body>& all_models() {
  static const std::vector<Body> bodies = {
      toy_body(4, {same_order_models()}, overlapped(), "five_sgd_steps_end_at_the_oracle")};
  return bodies;
}

const std::vector<Body>& all_bodies() {
  static const std::vector<Body> bodies = joined({training(), small_models(), all_models()});
  return bodies;
}

const std::vector<Body>& training() {
  static const std::vector<Body> bodies = [] {
    return joined({training_bodies(kSubject), recovery_bodies(kSubject)});
  }();
  return bodies;
}

const std::vector<Body>& misuse() {
  static const std::vector<Body> bodies =
      joined({misuse_bodies(kSubject),
              {sparse_made_dense(kSubject), refused_in_backward(kSubject)},
              second_backward_bodies(kSubject)});
  return bodies;
}

const std::vector<Body>& destruction() {
  static const std::vector<Body> bodies = destruction_bodies(kSubject);
  return bodies;
}

}  // namespace ddp::testing
