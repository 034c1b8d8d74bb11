#include <ATen/ATen.h>

#include <regex>

#include "branching_model.h"
#include "plan.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/grading.h"
#include "support/oracle.h"

// The destruction of a synchronizer, and its errors.

namespace ddp::testing {

namespace {

constexpr std::int64_t kSome = 300;
constexpr std::int64_t kOne = 1 << 20;  // one bucket

void expect_step_to_communicate(Rank& rank, Trainee& trainee, int step) {
  clear_gradients(trainee.parameters, /*to_none=*/true);
  rank.recorder().clear();
  trainee.backward(step);
  trainee.synchronizer->finish();
  EXPECT_FALSE(all_reduces(rank.recorder().operations()).empty())
      << "while the synchronizer lives, a step should communicate";
}

// Destroying the synchronizer leaves the gradients unchanged; later ones are local.
void expect_unhooked(Rank& rank, bool in_no_sync) {
  Trainee trainee(rank, ToyKind::kTiedWeights, toy_options(rank, at::kDouble), bucketed(kSome));
  Oracle oracle(trainee.kind, trainee.options, rank.world_size());
  expect_step_to_communicate(rank, trainee, 0);
  std::vector<at::Tensor> averages;
  for (const NamedTensor& parameter : trainee.parameters) {
    averages.push_back(parameter.tensor.grad().clone());
  }
  if (in_no_sync) {
    const NoSync scope(*trainee.synchronizer);
    clear_gradients(trainee.parameters, /*to_none=*/true);
    trainee.backward(0);
  } else {
    trainee.synchronizer.reset();
    for (std::size_t i = 0; i < averages.size(); ++i) {
      EXPECT_TRUE(is_bitwise_equal({"the gradient of " + trainee.parameters[i].name +
                                        " after the synchronizer was destroyed",
                                    rank.world_size()},
                                   trainee.parameters[i].tensor.grad(), averages[i]));
    }
  }
  trainee.synchronizer.reset();
  clear_gradients(trainee.parameters, /*to_none=*/true);
  rank.recorder().clear();
  trainee.backward(0);
  expect_silence(rank, "a backward after the synchronizer was destroyed");
  const auto expected = oracle.gradients(0, rank.rank());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(is_close({"the gradient of " + trainee.parameters[i].name +
                              ", computed after the synchronizer was destroyed,",
                          rank.world_size()},
                         trainee.parameters[i].tensor.grad(), expected[i].local, 1e-12));
  }
  EXPECT_EQ(rank.recorder().live_handles(), 0) << "handles of its all-reduces have outlived it";
  trainee.synchronizer =
      bucketed(kSome)(tensors_of(trainee.model->named_parameters()), {}, rank.group());
  expect_step_to_communicate(rank, trainee, 1);  // a new synchronizer on the same parameters
  trainee.parameters.clear();
  trainee.model.reset();  // before the synchronizer, which must accept that
}

const GradedTest kDestruction{
    {.name = "destruction_unhooks",
     .points = 1,
     .hint = "on_gradient_ready() returns a handle that keeps the hook: let only the synchronizer "
             "own it. A backward after its destruction must not be affected."},
    [] {
      run_worlds({2, 3}, [](Rank& rank) {
        expect_unhooked(rank, /*in_no_sync=*/false);
        expect_unhooked(rank, /*in_no_sync=*/true);
      });
    }};

// The index that messages must name: this digit appears in no dtype or size.
constexpr std::size_t kCulprit = 7;

// `provoke` must throw c10::Error before this rank has communicated anything, and name the index.
void expect_error(Rank& rank, const std::string& what, const std::function<void()>& provoke,
                  bool names_index = true) {
  rank.recorder().clear();
  try {
    provoke();
  } catch (const c10::NotImplementedError&) {
    throw;
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    const std::regex index("(^|[^0-9])" + std::to_string(kCulprit) + "($|[^0-9])");
    EXPECT_TRUE(!names_index || std::regex_search(message, index))
        << what << ": the message should name the index " << kCulprit << "; it says: " << message;
    expect_silence(rank, what + ": before the error this rank");
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << what << " should throw c10::Error; it threw something else: " << error.what();
    return;
  }
  ADD_FAILURE() << what << " should throw c10::Error; nothing was thrown";
}

// Eight weights, the last of which is the culprit. In a step all are in one bucket, so that nothing
// is in flight when the error is found.
std::vector<at::Tensor> eight_weights() {
  std::vector<at::Tensor> weights;
  for (std::size_t i = 0; i <= kCulprit; ++i) {
    weights.push_back(at::ones({5, 3}, at::TensorOptions(at::kFloat).device(settings().device))
                          .set_requires_grad(true));
  }
  return weights;
}

using Tensors = std::vector<at::Tensor>;

Tensors with_culprit(const at::Tensor& culprit) {
  Tensors weights = eight_weights();
  weights[kCulprit] = culprit;
  return weights;
}

void expect_errors_of_arguments(Rank& rank) {
  const auto make = [&](const Tensors& parameters, const Tensors& buffers, std::int64_t cap) {
    return [=, &rank] { make_bucketed_ddp(parameters, buffers, rank.group(), {.cap_bytes = cap}); };
  };
  const auto plan = [](const Tensors& parameters, std::int64_t cap) {
    return [=] { assign_buckets(parameters, cap); };
  };
  const Tensors undefined = with_culprit(at::Tensor());
  const Tensors non_leaf = with_culprit(eight_weights()[0] * 2);
  for (const std::int64_t cap : {0, -5}) {
    const std::string given = "a cap of " + std::to_string(cap) + " bytes";
    expect_error(rank, "assign_buckets() with " + given, plan(eight_weights(), cap), false);
    expect_error(rank, "make_bucketed_ddp() with " + given, make(eight_weights(), {}, cap), false);
  }
  expect_error(rank, "assign_buckets() of no parameters", plan({}, kSome), false);
  expect_error(rank, "make_bucketed_ddp() of no parameters", make({}, {}, kSome), false);
  expect_error(rank, "assign_buckets() of an undefined parameter", plan(undefined, kSome));
  expect_error(rank, "make_bucketed_ddp() of an undefined parameter", make(undefined, {}, kSome));
  expect_error(rank, "make_bucketed_ddp() with an undefined buffer",
               make(eight_weights(), undefined, kSome));
  expect_error(rank, "assign_buckets() of a parameter that is no leaf", plan(non_leaf, kSome));
  expect_error(rank, "make_bucketed_ddp() of a parameter that is no leaf",
               make(non_leaf, {}, kSome));
  expect_error(
      rank, "make_bucketed_ddp() with a null group",
      [] { make_bucketed_ddp(eight_weights(), {}, ProcessGroupPtr()); }, false);
}

// A step of a new synchronizer after `change` has been applied to the culprit; `loss_of_culprit`
// may or may not use it.
void expect_error_in_step(Rank& rank, const std::string& what,
                          const std::function<void(const at::Tensor&)>& change,
                          const std::function<at::Tensor(const at::Tensor&)>& loss_of_culprit) {
  for (const bool overlap : {true, false}) {
    const Tensors weights = eight_weights();
    const auto synchronizer =
        make_bucketed_ddp(weights, {}, rank.group(), {.cap_bytes = kOne, .overlap = overlap});
    change(weights[kCulprit]);
    expect_error(rank, what + (overlap ? "" : " (overlap = false)"), [&] {
      at::Tensor loss = at::zeros({}, weights[0].options().requires_grad(false));
      for (std::size_t i = 0; i < kCulprit; ++i) {
        loss = loss + weights[i].sum();
      }
      (loss + loss_of_culprit(weights[kCulprit])).backward();
      synchronizer->finish();
    });
  }
}

void expect_errors_of_gradients(Rank& rank) {
  const auto to_float64 = [](const at::Tensor& weight) {
    weight.set_data(weight.detach().to(at::kDouble));
  };
  expect_error_in_step(rank, "a parameter that has been moved to float64", to_float64,
                       [](const at::Tensor& weight) { return weight.sum().to(at::kFloat); });
  expect_error_in_step(rank, "a parameter that has been moved to float64, and is not used",
                       to_float64,
                       [](const at::Tensor& weight) { return at::zeros({}, weight.device()); });
  expect_error_in_step(
      rank, "a sparse gradient",
      [](const at::Tensor& weight) {
        weight.mutable_grad() = at::Tensor();  // a dense one would make the sum dense
      },
      [](const at::Tensor& weight) {
        const at::Tensor rows =
            at::zeros({2}, at::TensorOptions(at::kLong).device(weight.device()));
        return at::embedding(weight, rows, -1, /*scale_grad_by_freq=*/false, /*sparse=*/true).sum();
      });
}

// The first backward fills bucket 1, which waits for bucket 0: nothing is in flight yet.
void expect_error_of_second_backward(Rank& rank) {
  const BranchingModel model(rank, {3, 5});
  const auto synchronizer = bucketed(1)(tensors_of(model.parameters()), {}, rank.group());
  model.loss({0}, 0).backward();
  expect_error(
      rank, "a second backward outside NoSync before finish()",
      [&] { model.loss({0}, 1).backward(); }, false);
  try {
    synchronizer->finish();  // need not work after such an error
  } catch (const c10::Error&) {
  }
}

const GradedTest kErrors{
    {.name = "errors_name_the_parameter",
     .points = 1,
     .hint = "TORCH_CHECK() what the header lists, before any communication, and say which index "
             "is at fault. In a step: what has changed since the buckets were planned?"},
    [] {
      run_worlds({1, 2}, [](Rank& rank) {
        Trainee correct(rank, ToyKind::kMlp, toy_options(rank, at::kFloat), bucketed(kSome));
        if (rank.world_size() > 1) {
          expect_step_to_communicate(rank, correct, 0);
        }
        expect_errors_of_arguments(rank);
        expect_errors_of_gradients(rank);
        expect_error_of_second_backward(rank);
      });
    }};

}  // namespace

}  // namespace ddp::testing
