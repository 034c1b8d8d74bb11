#include <ATen/ATen.h>

#include <sstream>
#include <utility>

#include "grader/calls.h"
#include "grader/settings.h"
#include "grader/training.h"
#include "scenarios.h"

// Uses that must be refused.

namespace ddp::testing {

namespace {

constexpr std::int64_t kChannels = 3;

at::Tensor ones(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  return at::ones(shape, at::TensorOptions(dtype).device(settings().device));
}

using Change = std::function<void(Use&)>;

// A call with one argument that does not fit, with samples and without.
void refuse(Uses& uses, const std::string& what, bool training, const Change& spoil,
            double eps = 1e-5) {
  for (const std::int64_t samples : {4, 0}) {
    Use& use =
        *uses.add({.shape = {samples, kChannels, 2}, .mode = {.training = training, .eps = eps}});
    spoil(use);
    use.replace_tensors(use.tensors);  // by these
    use.attempt(what + (samples > 0 ? "" : ", without samples") +
                (training ? "" : " in evaluation"));
  }
}

void wrong_inputs(Uses& uses, bool training) {
  const auto input = [&](const std::string& what, const at::Tensor& culprit) {
    refuse(uses, what, training, [&](Use& use) { use.input = culprit; });
  };
  input("an undefined input", at::Tensor());
  input("an input without dimensions", ones({}));
  input("an input of 1 dimension", ones({kChannels}));
  input("an input of 6 dimensions", ones({4, kChannels, 2, 1, 1, 1}));
  input("an input of int64", ones({4, kChannels}, at::kLong));
  input("an input of int32", ones({4, kChannels, 2}, at::kInt));
  input("an input of truth values", ones({4, kChannels}, at::kBool));
  input("an input of complex numbers", ones({4, kChannels}, at::kComplexFloat));
  input("an input without channels", ones({4, 0, 2}));
}

// In the place of each of the four.
void wrong_tensors(Uses& uses, bool training) {
  const std::vector<std::pair<std::string, at::Tensor>> culprits = {
      {"one channel more", ones({kChannels + 1})},
      {"one channel only", ones({1})},
      {"two dimensions", ones({1, kChannels})},
      {"no dimension", ones({})},
      {"float64 with a float32 input", ones({kChannels}, at::kDouble)},
      {"half with a float32 input", ones({kChannels}, at::kHalf)},
      {"int64", ones({kChannels}, at::kLong)},
      {"another device", at::ones({kChannels}, at::TensorOptions(at::kFloat).device(at::kMeta))}};
  const std::vector<std::pair<std::string, at::Tensor BatchNormTensors::*>> places = {
      {"a weight of ", &BatchNormTensors::weight},
      {"a bias of ", &BatchNormTensors::bias},
      {"a running mean of ", &BatchNormTensors::running_mean},
      {"a running variance of ", &BatchNormTensors::running_var}};
  for (const auto& place : places) {
    for (const auto& culprit : culprits) {
      refuse(uses, place.first + culprit.first, training,
             [&](Use& use) { use.tensors.*place.second = culprit.second; });
    }
  }
  refuse(uses, "a bias of one channel more and no weight", training, [](Use& use) {
    use.tensors.weight.reset();
    use.tensors.bias = ones({kChannels + 1});
  });
  for (const auto& [of_input, of_weight] :
       {std::pair(at::kHalf, at::kBFloat16), std::pair(at::kBFloat16, at::kHalf)}) {
    refuse(uses, "a 16-bit weight of another dtype than the input's", training,
           [of_input = of_input, of_weight = of_weight](Use& use) {
             use.input = use.input.detach().to(of_input);
             use.tensors.weight = ones({kChannels}, of_weight);
           });
  }
  refuse(uses, "a running mean without a variance", training,
         [](Use& use) { use.tensors.running_var.reset(); });
  refuse(uses, "a running variance without a mean", training,
         [](Use& use) { use.tensors.running_mean.reset(); });
}

void wrong_arguments(Uses& uses) {
  for (const bool training : {true, false}) {
    wrong_inputs(uses, training);
    wrong_tensors(uses, training);
    for (const double eps : {0.0, -1e-5, std::nan("")}) {
      refuse(
          uses, "eps = " + std::to_string(eps), training, [](Use&) {}, eps);
    }
    refuse(uses, "a null group", training, [](Use& use) { use.drop_group(); });
  }
  uses.run({});  // what rejects everything does not pass
}

void wrong_modules(Uses& uses) {
  Client& client = uses.client();
  const auto make = [&](const std::string& what, const BatchNormOptions& options,
                        const ProcessGroupPtr& group) {
    attempt(client, what, [&] { static_cast<void>(make_sync_batch_norm(options, group)); });
  };
  make("a module of no features", {.num_features = 0}, uses.group());
  make("a module of -2 features", {.num_features = -2}, uses.group());
  make("a module with eps = 0", {.num_features = 2, .eps = 0}, uses.group());
  make("a module with a null group", {.num_features = 2}, nullptr);
  const NormModule module = uses.module({.num_features = kChannels});
  uses.run({}, module);
  for (const at::Tensor& input :
       {ones({4, kChannels + 1}), ones({kChannels}), ones({4, kChannels, 1, 1, 1, 2}),
        ones({4, kChannels}, at::kLong)}) {
    std::ostringstream text;
    text << "a module of " << kChannels << " features, given " << input.dtype() << " "
         << input.sizes();
    Use& use = *uses.add({}, module);
    use.input = input;
    use.attempt(text.str());
  }
  uses.run({}, module);
}

void narrow_input(Uses& uses) {
  const NormModule wide = uses.module({.num_features = kChannels}, at::kDouble);
  Use& use = *uses.add({.dtype = at::kDouble}, wide);
  use.input = use.input.detach().to(at::kFloat);
  use.attempt("a module in float64, given float32");
}

// Every rank must throw, before or after the collective, and none may be left waiting in it.
void too_few_values(Uses& uses) {
  const int last = uses.client().world().ranks - 1;
  const auto refuse_sizes = [&](const std::string& what, Shape shape, const NormModule& module,
                                bool running = true) {
    shape[0] = uses.client().rank() == last ? shape[0] : 0;
    Use& use = *uses.add({.shape = shape, .running = running}, module);
    use.attempt(what);
  };
  refuse_sizes("one value without running statistics", {1, kChannels}, nullptr, false);
  const NormModule module = uses.module({.num_features = kChannels});
  for (const NormModule& by : {NormModule(), module}) {
    const std::string of = by ? ", by a module" : "";
    refuse_sizes("one value a channel on all ranks together" + of, {1, kChannels}, by);
    refuse_sizes("one sample of one position on all ranks together" + of, {1, kChannels, 1, 1}, by);
    refuse_sizes("no sample on any rank" + of, {0, kChannels, 4}, by);
    refuse_sizes("samples without a position" + of, {2, kChannels, 0}, by);
  }
  uses.run({.shape = {last == 0 ? 2 : 1, kChannels}});  // is enough
}

// Rank 1 fails before forward, or before backward; what needs it must fail, too.
void rank_1_fails(Uses& uses, bool in_forward) {
  Use& use = *uses.add({});
  const bool fails = uses.client().rank() == 1;
  if (!in_forward) {
    use.forward();
  } else if (fails) {
    use.drop_group();
    use.attempt("a null group on this rank only");
  } else {
    expect_failure(uses.client(), "a forward that rank 1 takes no part in", [&] { use.forward(); });
  }
  if (!in_forward && !fails) {
    expect_failure(uses.client(), "a backward that rank 1 takes no part in",
                   [&] { use.backward(); });
  }
  use.output.reset();
}

std::vector<Scenario> lost_connections(const std::string& charged_to) {
  std::vector<Scenario> scenarios;
  for (const bool in_forward : {true, false}) {
    const std::string what = in_forward ? "forward's collective" : "backward's collective";
    scenarios.push_back(scenario_of(what + " fails", 2, charged_to, [what, in_forward](Uses& uses) {
      Use& use = *uses.add({});
      expect_lost_connection(uses.client(), "a training step of which " + what + " fails", [&] {
        use.forward();
        use.backward();
      });
      use.output.reset();
      if (in_forward) {
        use.end();  // with the running statistics of before
      }
    }));
    scenarios.back().world.failure = Failure{.step = 0, .operation = in_forward ? 0 : 1};
  }
  return scenarios;
}

}  // namespace

std::vector<Scenario> counts() {
  return with_ranks({2, 1, 3}, "too few values", "a_global_count_of_one_is_an_error_on_all_ranks",
                    too_few_values);
}

std::vector<Scenario> misuse() {
  const char* const test = "errors_come_before_communication";
  return joined({with_ranks({1, 2}, "wrong arguments", test, wrong_arguments),
                 with_ranks({2}, "wrong modules", test, wrong_modules),
                 with_ranks({2}, "a module in float64 is given float32", test, narrow_input),
                 with_ranks({2}, "rank 1 is given a wrong argument", test,
                            [](Uses& uses) { rank_1_fails(uses, /*in_forward=*/true); }),
                 with_ranks({2}, "rank 1 makes no backward", test,
                            [](Uses& uses) { rank_1_fails(uses, /*in_forward=*/false); }),
                 lost_connections(test)});
}

}  // namespace ddp::testing
