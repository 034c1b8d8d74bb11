#include "scenarios.h"

#include <ATen/ATen.h>

#include "01_naive_ddp/naive_ddp.h"
#include "ddp/referee/client.h"
#include "grader/calls.h"
#include "grader/settings.h"
#include "grader/toy_scenarios.h"
#include "grader/training_scenarios.h"

namespace ddp::testing {

namespace {

constexpr const char* kTrainingTest = "five_sgd_steps_end_at_the_oracle";

const SynchronizerUnderTest& subject(Form form) {
  static const SynchronizerUnderTest per_parameter = {
      .make =
          [](Client&, const std::vector<at::Tensor>& parameters,
             const std::vector<at::Tensor>& buffers,
             const ProcessGroupPtr& group) { return make_naive_ddp(parameters, buffers, group); },
      .charged = {.mean = "gradients_are_the_mean_over_ranks",
                  .missing = "missing_gradients_count_as_zero",
                  .accumulation = "one_all_reduce_per_parameter",
                  .lifetime = "mistakes_are_errors_and_hang_nobody",
                  .growth = "mistakes_are_errors_and_hang_nobody",
                  .errors = "mistakes_are_errors_and_hang_nobody",
                  .undefined = "missing_gradients_count_as_zero"}};
  static const std::string one = "flat_form_is_one_all_reduce";
  static const SynchronizerUnderTest flat = {
      .make =
          [](Client&, const std::vector<at::Tensor>& parameters,
             const std::vector<at::Tensor>& buffers,
             const ProcessGroupPtr& group) { return make_flat_ddp(parameters, buffers, group); },
      .charged = {.mean = one,
                  .missing = one,
                  .accumulation = one,
                  .lifetime = per_parameter.charged.lifetime,
                  .growth = one,
                  .errors = per_parameter.charged.errors},
      .form = "flat: ",
      .mixed_dtypes = false};
  return form == Form::kFlat ? flat : per_parameter;
}

// A flat tensor has one dtype.
void construct_with_two_dtypes(Client& client) {
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  std::vector<at::Tensor> parameters(9);
  const auto must_refuse = [&](const std::string& what) {
    attempt(client, what, [&] { static_cast<void>(make_flat_ddp(parameters, {}, group)); });
  };
  for (const auto& [first, other] :
       {std::pair(at::kFloat, at::kDouble), std::pair(at::kHalf, at::kBFloat16)}) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      // Frozen ones do not count: they are never reduced.
      const bool trainable = i != 2 && i != 6;
      parameters[i] =
          at::ones({2}, i >= 7 || !trainable ? other : first).set_requires_grad(trainable);
    }
    must_refuse("a trainable parameter of another dtype than those before it (index 7)");
    parameters[0] = at::ones({2}, other).set_requires_grad(true);
    must_refuse("the first parameter is the only one of its dtype (index 1)");
    parameters[0] = at::ones({2}, first).set_requires_grad(true);
    parameters[4] = parameters[1];  // tied, and a place in the list, too
    must_refuse("a parameter of another dtype, after a tied weight (index 7)");
    for (const auto& shape : {std::vector<std::int64_t>{0, 3}, std::vector<std::int64_t>{}}) {
      parameters[7] = at::ones(shape, other).set_requires_grad(true);
      must_refuse("a parameter of another dtype, of no or one element (index 7)");
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] = at::ones({2}, i == 7 ? at::kMeta : at::kCPU).set_requires_grad(true);
  }
  must_refuse("a trainable parameter on another device than those before it (index 7)");
  parameters[8] = at::ones({2}, at::kDouble).set_requires_grad(true);
  must_refuse("a parameter on another device, before one of another dtype (index 7)");
}

// Refused before the others are sent, in the second step. The sparse one has values, none or no
// elements: then another one is at the same address.
Scenario sparse_among_dense(const SynchronizerUnderTest& subject) {
  return {
      subject.form + "a sparse gradient among dense ones",
      {},
      [make = subject.make](Client& client) {
        std::vector<at::Tensor> parameters(70);
        for (const auto& [rows, value] : {std::pair(2, 1), std::pair(2, 0), std::pair(0, 1)}) {
          for (std::size_t i = 0; i < parameters.size(); ++i) {
            parameters[i] =
                at::ones({i % 27 == 13 ? rows : 2, 3}, settings().device).set_requires_grad(true);
          }
          const auto synchronizer =
              make(client, parameters, {}, make_group(client.shared_from_this()));
          for (at::Tensor& parameter : parameters) {
            parameter.mutable_grad() = at::ones_like(parameter);
          }
          synchronizer->finish();
          parameters[67].mutable_grad() = at::full_like(parameters[67], value).to_sparse();
          attempt(client, "a sparse gradient among dense ones (index 67)",
                  [&] { synchronizer->finish(); });
        }
      },
      subject.charged.errors,
      {kEmpty}};
}

// More than the 25 MiB of which PyTorch makes a bucket.
Scenario many_gradients() {
  const SynchronizerUnderTest& flat = subject(Form::kFlat);
  return {flat.form + "more than 25 MiB",
          {},
          [make = flat.make](Client& client) {
            Training training(client, {.layers = {{{6'600'000}}, {{1'000}}}}, make);
            training.construct();
            for (std::size_t i = 0; i < 2; ++i) {
              training.set_gradient(i, at::zeros_like(training.parameters()[i]).detach());
            }
            training.finish();
          },
          flat.charged.mean};
}

std::vector<Scenario> of_both(std::vector<Scenario> (*scenarios)(const SynchronizerUnderTest&)) {
  return joined({scenarios(subject(Form::kPerParameter)), scenarios(subject(Form::kFlat))});
}

}  // namespace

std::vector<Scenario> training(Form form) {
  std::vector<Scenario> scenarios =
      joined({training_scenarios(subject(form)), recovery_scenarios(subject(form))});
  if (form == Form::kFlat) {
    scenarios.push_back(many_gradients());
  }
  return scenarios;
}

std::vector<Scenario> rank_dependent(Form form) { return rank_dependent_scenarios(subject(form)); }

std::vector<Scenario> all_training() {
  return joined(
      {training(Form::kPerParameter), training(Form::kFlat), of_both(rank_dependent_scenarios)});
}

std::vector<Scenario> small_models() {
  return {toy_scenario(2, plain_models(), subject(Form::kPerParameter).make, kTrainingTest)};
}

std::vector<Scenario> all_models() {
  return {toy_scenario(4, {all_toy_models()}, subject(Form::kPerParameter).make, kTrainingTest)};
}

std::vector<Scenario> misuse() {
  const std::string& errors = subject(Form::kFlat).charged.errors;
  return joined(
      {of_both(misuse_scenarios),
       {sparse_made_dense(subject(Form::kPerParameter)),
        sparse_made_dense(subject(Form::kFlat)),
        sparse_among_dense(subject(Form::kPerParameter)),
        sparse_among_dense(subject(Form::kFlat)),
        {"flat: construction with two dtypes or devices", {}, construct_with_two_dtypes, errors},
        {"flat: construction with two dtypes, on one rank",
         {.ranks = 1},
         construct_with_two_dtypes,
         errors,
         {kOneRank}}}});
}

std::vector<Scenario> destruction() { return of_both(destruction_scenarios); }

}  // namespace ddp::testing
