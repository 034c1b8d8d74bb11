#include "scenarios.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "grader/toy_scenarios.h"
#include "grader/training_scenarios.h"

namespace ddp::testing {

namespace {

// Without those that ask for what this stage does not have: one value for weights that are the same
// memory, and gradients that are there after a step. One about NoSync is charged as such.
std::vector<Scenario> fitting(std::vector<Scenario> scenarios) {
  std::erase_if(scenarios, [](const Scenario& scenario) {
    return scenario.name.ends_with("weights that are the same memory") ||
           scenario.name.ends_with("a rank without a backward");
  });
  for (Scenario& scenario : scenarios) {
    if (scenario.name.ends_with("a rank that accumulates inside NoSync only")) {
      scenario.charged_to = kAccumulationTest;
    }
    scenario.name = in_own_words(scenario.name);
  }
  return scenarios;
}

std::vector<Scenario> some_of(const SynchronizerUnderTest& form,
                              const std::vector<std::string>& names) {
  return named(training_scenarios(form), names, form.form);
}

// The scenarios in which buckets of another size, another optimizer, or no overlap, are another path.
std::vector<Scenario> a_few_of(const SynchronizerUnderTest& form) {
  return some_of(
      form, {"three layers, three steps", "one rank", "float64, five ranks",
             "layers of several dtypes", "a tied and a frozen weight",
             "layers that some steps do not use", "two micro-batches inside NoSync, one outside",
             "all micro-batches inside NoSync", "layers of 0, 1 and many elements"});
}

// Each rank uses the layers in its own order, and some not at all; in the last step rank 1 has no
// backward.
Scenario in_other_orders(int ranks, std::int64_t cap) {
  return {"layers in another order on each rank, cap " + std::to_string(cap),
          {.ranks = ranks},
          [cap](Client& client) {
            Training training(client, {.layers = {{{3}}, {{5}}, {{7}}, {{11}}, {{13}}, {{17}}}},
                              sharded({.options = {.cap_bytes = cap}}));
            training.construct();
            for (int step = 0; step < 3; ++step) {
              std::vector<std::size_t> order = {5, 2, 4, 1, 3, 0};
              std::rotate(order.begin(), order.begin() + client.rank() + step, order.end());
              order.resize(6 - step);
              training.clear(Clear::kNone);
              if (step < 2 || client.rank() != 1) {
                training.backward(training.loss_in_order(order));
              }
              training.finish();
            }
          },
          kOrderTest,
          edge_cases_of(World{.ranks = ranks})};
}

// Weights, gradients, their sums and means, and momentum have few bits each, so that no order of adding
// rounds anything. What the caller writes between steps does not count.
Scenario without_rounding(std::int64_t cap) {
  return {"numbers of few bits, parameters overwritten before step 1, four ranks, cap " +
              std::to_string(cap),
          {.ranks = 4},
          [cap](Client& client) {
            Training training(client,
                              {.layers = {{{3, 5}}, {{7}}, {{4, 2}}, {{1}}},
                               .memory = TrainingOptions::Memory::kOneTensor},
                              sharded({.options = {.cap_bytes = cap}}));
            training.construct();
            for (int step = 0; step < 3; ++step) {
              training.clear(Clear::kNone);
              if (step == 1) {
                training.fill(7);
                client.value(kOverwritten, at::scalar_tensor(7.0));
              }
              at::Tensor loss = at::zeros({}, at::kDouble);
              for (std::size_t layer = 0; layer < training.parameters().size(); ++layer) {
                const at::Tensor& weight = training.parameters()[layer];
                const at::Tensor count =
                    at::arange(weight.numel(), weight.options().requires_grad(false));
                loss =
                    training.add_term(loss, layer, (count + client.rank() + step).view_as(weight));
              }
              training.backward(loss);
              training.finish();
            }
          },
          kEndTest,
          edge_cases_of(World{.ranks = 4})};
}

// Layers differ in elements, so that no two launches look alike.
Scenario chain(const std::string& name, const std::vector<std::int64_t>& elements, int ranks,
               const ShardedOptimizerOptions& options) {
  return {name + ", cap " + std::to_string(options.cap_bytes) +
              (options.overlap ? "" : ", without overlap") + ", " + std::to_string(ranks) +
              " ranks",
          {.ranks = ranks},
          [elements, options](Client& client) {
            Training training(client, {.layers = layers_of_sizes(elements)},
                              sharded({.options = options}));
            training.construct();
            training.step();
            training.step();
          },
          "step_time_is_the_chain_of_buckets",
          edge_cases_of(World{.ranks = ranks})};
}

}  // namespace

std::vector<Scenario> same_order() {
  return joined(
      {fitting(training_scenarios(subject({.options = {.cap_bytes = kSome}}))),
       recovery_scenarios(subject({.options = {.cap_bytes = kSome}})),
       a_few_of(subject({.options = {.cap_bytes = kEach}}, "each: ")),
       a_few_of(subject({.options = {.cap_bytes = kOne}}, "one: ")),
       some_of(subject({.options = {.cap_bytes = kSome}, .inner = Inner::kAdamW}, "AdamW: "),
               {"float64, five ranks"}),
       some_of(subject({.options = {.cap_bytes = kEach}, .slows = true}, "a falling rate: "),
               {"three layers, three steps"})});
}

std::vector<Scenario> overlapping() {
  return joined(
      {same_order(),
       {in_other_orders(2, kEach), in_other_orders(3, 60), in_other_orders(3, kOne)},
       fitting(rank_dependent_scenarios(subject({.options = {.cap_bytes = kSome}}))),
       fitting(rank_dependent_scenarios(subject({.options = {.cap_bytes = kEach}}, "each: ")))});
}

std::vector<Scenario> without_overlap() {
  const auto sync =
      subject({.options = {.cap_bytes = kSome, .overlap = false}}, "without overlap: ");
  const auto each =
      subject({.options = {.cap_bytes = kEach, .overlap = false}}, "each, without overlap: ");
  return joined({some_of(each, {"three layers, three steps"}), a_few_of(sync),
                 fitting(rank_dependent_scenarios(sync))});
}

std::vector<Scenario> exact() { return {without_rounding(60), without_rounding(kOne)}; }

std::vector<Scenario> clipping() {
  const auto clipped = subject({.options = {.cap_bytes = kSome}, .max_norm = 0.25}, "clipped: ");
  std::vector<Scenario> all = joined(
      {some_of(subject({.options = {.cap_bytes = kEach}, .max_norm = 0.25}, "each, clipped: "),
               {"three layers, three steps"}),
       a_few_of(clipped), some_of(clipped, {"float16, large on one rank"}),
       some_of(subject({.options = {.cap_bytes = kSome}, .max_norm = 1e6}, "not clipped: "),
               {"three layers, three steps"}),
       some_of(subject({.options = {.cap_bytes = kSome, .overlap = false}, .max_norm = 0.25},
                       "clipped without overlap: "),
               {"three layers, three steps"})});
  for (Scenario& scenario : all) {
    scenario.charged_to = kNormTest;  // what breaks without clipping, too, is charged to others
  }
  return all;
}

std::vector<Scenario> small_models() {
  return {toy_scenario(2, {same_order_models()},
                       sharded({.options = {.cap_bytes = kSome}, .inner = Inner::kSgd}), kEndTest),
          toy_scenario(4, {same_order_models()},
                       sharded({.options = {.cap_bytes = kEach}, .inner = Inner::kSgd}), kEndTest)};
}

std::vector<Scenario> branching_models() {
  Scenario scenario =
      toy_scenario(3, {{ToyKind::kRankBranch}},
                   sharded({.options = {.cap_bytes = kSome}, .inner = Inner::kSgd}), kOrderTest);
  scenario.name += ", with a branch";
  return std::vector<Scenario>{scenario};
}

std::vector<Scenario> timed() {
  std::vector<Scenario> all;
  int ranks = 2;
  for (const std::int64_t cap : {1, 4'096, 20'000, 1 << 20}) {
    const std::vector<std::int64_t> uneven = {256, 64, 1024, 128, 2048, 515};
    all.push_back(chain("layers of several sizes", uneven, ranks, {.cap_bytes = cap}));
    all.push_back(
        chain("layers of several sizes", uneven, ranks, {.cap_bytes = cap, .overlap = false}));
    ranks = ranks == 4 ? 2 : ranks + 1;
  }
  return all;
}

}  // namespace ddp::testing
