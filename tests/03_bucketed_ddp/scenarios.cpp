#include "scenarios.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "buckets.h"
#include "ddp/meters/memory_meter.h"
#include "ddp/referee/client.h"
#include "grader/calls.h"
#include "grader/settings.h"
#include "grader/toy_scenarios.h"
#include "grader/training_scenarios.h"

namespace ddp::testing {

Factory bucketed(const BucketedDdpOptions& options) {
  return [options](Client& client, const std::vector<at::Tensor>& parameters,
                   const std::vector<at::Tensor>& buffers, const ProcessGroupPtr& group) {
    if (client.place().phase == Phase::kConstruction) {
      client.value(kBucketPlan, as_tensor(assign_buckets(parameters, options.cap_bytes)));
      client.value(kCap, at::scalar_tensor(options.cap_bytes, at::kLong));
      client.value(options.overlap ? kWithOverlap : kWithoutOverlap, at::Tensor());
    }
    static BucketedDdpOptions given;  // which the caller uses for something else afterwards
    given = options;
    auto synchronizer = make_bucketed_ddp(parameters, buffers, group, given);
    given = {.cap_bytes = 1, .overlap = !options.overlap};
    return synchronizer;
  };
}

namespace {

// Tests that are charged with scenarios.
constexpr const char* kMeanTest = "gradients_are_the_mean_over_ranks";
constexpr const char* kTrainingTest = "five_sgd_steps_end_at_the_oracle";
constexpr const char* kOrderTest = "buckets_start_in_plan_order";
constexpr const char* kNoOverlapTest = "without_overlap_buckets_are_reduced_after_backward";
constexpr const char* kErrorsTest = "errors_name_the_parameter";
constexpr const char* kDestructionTest = "destruction_unhooks";

// The synchronizer with these options; `form` begins its scenarios' names.
SynchronizerUnderTest subject(const BucketedDdpOptions& options, const std::string& form = "") {
  const bool overlap = options.overlap;
  return {
      .make = bucketed(options),
      .charged = {.mean = overlap ? kMeanTest : kNoOverlapTest,
                  .missing = overlap ? kOrderTest : kNoOverlapTest,
                  .accumulation = overlap ? "gradients_accumulate_inside_no_sync" : kNoOverlapTest,
                  .lifetime = overlap ? kDestructionTest : kNoOverlapTest,
                  .growth = "buckets_take_the_gradients_bytes_and_one_bucket",
                  .errors = kErrorsTest},
      .form = form};
}

// The scenarios in which buckets of another size, or without overlap, are another path.
std::vector<Scenario> a_few_of(const SynchronizerUnderTest& form) {
  return named(
      training_scenarios(form),
      {"three layers, three steps", "one rank", "float16, nine ranks", "layers of several dtypes",
       "a tied and a frozen weight", "weights that are not row-major",
       "gradients are replaced between steps", "layers that some steps do not use",
       "gradients of an earlier step are left",
       "a layer that was frozen at construction is trained",
       "no backward at all, then finish() three times a step", "sixty steps of several kinds",
       "two micro-batches inside NoSync, one outside", "all micro-batches inside NoSync",
       "a NoSync scope between backward and finish()", "70 layers, inside NoSync only"},
      form.form);
}

// Each rank uses the layers in its own order, and some not at all: `order_of`, by rank and step.
Scenario in_other_orders(const std::string& name, int ranks, std::int64_t cap,
                         const std::function<std::vector<std::size_t>(int, int)>& order_of,
                         at::ScalarType of_odd_layers = at::kFloat) {
  EdgeCases edge_cases = edge_cases_of(World{.ranks = ranks});
  if (of_odd_layers != at::kFloat) {
    edge_cases.insert(kDtype);
  }
  return {name,
          {.ranks = ranks},
          [cap, order_of, of_odd_layers](Client& client) {
            std::vector<Layer> layers = {{{3}}, {{5}}, {{7}}, {{11}}, {{13}}, {{17}}};
            for (const std::size_t odd : {1, 3, 5}) {
              layers[odd].dtype = of_odd_layers;
            }
            Training training(client, {.layers = layers}, bucketed({.cap_bytes = cap}));
            training.construct();
            for (int step = 0; step < 3; ++step) {
              training.clear(step == 1 ? Clear::kZero : Clear::kNone);
              training.backward(training.loss_in_order(order_of(client.rank(), step)));
              training.finish();
            }
          },
          kOrderTest,
          edge_cases};
}

std::vector<Scenario> orders() {
  std::vector<Scenario> scenarios;
  for (const std::int64_t cap : {kEach, std::int64_t{60}, kOne}) {
    const std::string of = ", cap " + std::to_string(cap);
    scenarios.push_back(
        in_other_orders("layers in another order than the plan's" + of, 2, cap, [](int, int step) {
          return std::vector<std::vector<std::size_t>>{
              {3, 5, 4, 0, 2, 1}, {0, 1, 3, 5, 4, 2}, {2, 1, 4, 5}}[step];
        }));
    scenarios.push_back(in_other_orders(
        "layers in another order on each rank" + of, 3, cap, [](int rank, int step) {
          std::vector<std::size_t> order = {5, 2, 4, 1, 3, 0};
          std::rotate(order.begin(), order.begin() + rank + step, order.end());
          order.resize(6 - step);
          return order;
        }));
    scenarios.push_back(in_other_orders(
        "layers of two dtypes in another order than the plan's" + of, 2, cap,
        [](int, int) { return std::vector<std::size_t>{0, 1, 2, 4, 3, 5}; }, at::kDouble));
  }
  return scenarios;
}

// Layers differ in elements, so that no two launches look alike.
Scenario chain(const std::string& name, const std::vector<std::int64_t>& elements, int ranks,
               const BucketedDdpOptions& options) {
  return {name + ", cap " + std::to_string(options.cap_bytes) +
              (options.overlap ? "" : ", without overlap") + ", " + std::to_string(ranks) +
              " ranks",
          {.ranks = ranks},
          [elements, options](Client& client) {
            Training training(client, {.layers = layers_of_sizes(elements)}, bucketed(options));
            training.construct();
            training.step();
            training.step(Clear::kZero);
          },
          "step_time_is_the_chain_of_buckets",
          edge_cases_of(World{.ranks = ranks})};
}

// Ranks that take different branches, or use layers in other orders.
std::vector<Scenario> other_orders() {
  return joined({orders(), rank_dependent_scenarios(subject({.cap_bytes = kSome})),
                 rank_dependent_scenarios(subject({.cap_bytes = kEach}, "each: "))});
}

}  // namespace

std::vector<Scenario> same_order() {
  const SynchronizerUnderTest one = subject({.cap_bytes = kOne}, "one: ");
  return joined({training_scenarios(subject({.cap_bytes = kSome})),
                 recovery_scenarios(subject({.cap_bytes = kSome})),
                 a_few_of(subject({.cap_bytes = kEach}, "each: ")), a_few_of(one),
                 named(training_scenarios(one), {"310 layers", "layers of 0, 1 and many elements"},
                       one.form)});
}

std::vector<Scenario> overlapping() { return joined({same_order(), other_orders()}); }

std::vector<Scenario> without_overlap() {
  const auto sync = subject({.cap_bytes = kSome, .overlap = false}, "without overlap: ");
  return joined({a_few_of(sync), rank_dependent_scenarios(sync)});
}

std::vector<Scenario> small_models() {
  return {toy_scenario(2, plain_models(), bucketed({.cap_bytes = kSome}), kTrainingTest)};
}

std::vector<Scenario> all_models() {
  return {toy_scenario(4, {same_order_models()}, bucketed({.cap_bytes = kEach}), kTrainingTest)};
}

std::vector<Scenario> branching_models() {
  std::vector<Scenario> all = {
      toy_scenario(3, {{ToyKind::kRankBranch}}, bucketed({.cap_bytes = kSome}), kOrderTest),
      toy_scenario(4, {{ToyKind::kRankBranch}}, bucketed({.cap_bytes = kEach}), kOrderTest)};
  for (Scenario& scenario : all) {
    scenario.name += ", with a branch";
  }
  return all;
}

std::vector<Scenario> timed() {
  std::vector<Scenario> all;
  int ranks = 2;
  for (const std::int64_t cap : {1, 4'096, 20'000, 1 << 20}) {
    const std::vector<std::int64_t> uneven = {256, 64, 1024, 128, 2048, 512};
    all.push_back(chain("layers of several sizes", uneven, ranks, {.cap_bytes = cap}));
    all.push_back(chain("a large layer at last", {4096, 64, 64, 64, 64, 64, 64, 64}, ranks,
                        {.cap_bytes = cap}));
    all.push_back(
        chain("layers of several sizes", uneven, ranks, {.cap_bytes = cap, .overlap = false}));
    ranks = ranks == 4 ? 2 : ranks + 1;
  }
  return all;
}

// Scenarios for errors, lifetime and memory.

namespace {

// Of which the last may be wrong.
std::vector<at::Tensor> eight_weights() {
  std::vector<at::Tensor> weights(8);
  for (at::Tensor& weight : weights) {
    weight = at::ones({5, 3}, settings().device).set_requires_grad(true);
  }
  return weights;
}

void plan_wrongly(Client& client) {
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  std::vector<at::Tensor> undefined = eight_weights();
  undefined[7] = at::Tensor();
  std::vector<at::Tensor> inner = eight_weights();
  inner[7] = inner[7] * 2;
  for (const std::int64_t cap : {0, -5}) {
    const std::string given = "a cap of " + std::to_string(cap) + " bytes";
    attempt(client, "assign_buckets() with " + given,
            [&] { assign_buckets(eight_weights(), cap); });
    attempt(client, "make_bucketed_ddp() of frozen weights with " + given, [&] {
      static_cast<void>(make_bucketed_ddp({at::ones({2})}, {}, group, {.cap_bytes = cap}));
    });
    attempt(client, "make_bucketed_ddp() with " + given, [&] {
      static_cast<void>(make_bucketed_ddp(eight_weights(), {}, group, {.cap_bytes = cap}));
    });
  }
  attempt(client, "assign_buckets() of no parameters", [] { assign_buckets({}, kSome); });
  attempt(client, "assign_buckets() of an undefined parameter (index 7)",
          [&] { assign_buckets(undefined, kSome); });
  attempt(client, "assign_buckets() of a parameter that is no leaf (index 7)",
          [&] { assign_buckets(inner, kSome); });
}

// All weights are in one bucket, so that nothing is in flight when the error is found, in the second
// step. A frozen weight may be what it likes.
void move_to_float64(Client& client, bool overlap, bool used, bool has_gradient = false) {
  const std::vector<at::Tensor> weights = eight_weights();
  weights[5].set_requires_grad(false);
  const auto synchronizer = make_bucketed_ddp(weights, {}, make_group(client.shared_from_this()),
                                              {.cap_bytes = kOne, .overlap = overlap});
  weights[5].set_data(weights[5].to(at::kDouble));
  const auto step = [&](int used) {
    at::Tensor loss = at::zeros({}, settings().device);
    for (int i = 0; i < used; ++i) {
      loss = loss + weights[i].sum().to(at::kFloat);
    }
    loss.backward();
    synchronizer->finish();
  };
  step(8);
  if (!has_gradient) {
    for (const at::Tensor& weight : weights) {
      weight.mutable_grad().reset();
    }
  }
  weights[7].set_data(weights[7].detach().to(at::kDouble));
  attempt(client, "a parameter that has been moved to float64 (index 7)",
          [&] { step(used ? 8 : 7); });
}

// Elements of the new dtype are as large as the old ones.
void move_to_bfloat16(Client& client) {
  std::vector<at::Tensor> weights = eight_weights();
  for (at::Tensor& weight : weights) {
    weight = weight.detach().to(at::kHalf).set_requires_grad(weight.requires_grad());
  }
  const auto synchronizer =
      make_bucketed_ddp(weights, {}, make_group(client.shared_from_this()), {.cap_bytes = kOne});
  weights[7].set_data(weights[7].detach().to(at::kBFloat16));
  attempt(client, "a parameter that has been moved from half to bfloat16 (index 7)", [&] {
    weights[7].sum().backward();
    synchronizer->finish();
  });
}

// Of two buckets: the first, which is in flight then, or the second, which waits for it.
void second_backward_of_a_bucket(Client& client, std::size_t layer) {
  Training training(client, {.layers = {{{3}}, {{5}}}}, bucketed({.cap_bytes = kEach}));
  training.construct();
  training.backward(training.loss_in_order({layer}), /*create_graph=*/true);
  attempt(client, "a second backward outside NoSync before finish()",
          [&] { training.backward(training.loss_in_order({layer}), /*create_graph=*/true); });
  if (layer == 1) {
    return;  // destroyed as it is
  }
  try {
    training.synchronizer().finish();  // need not work after such an error
  } catch (const c10::Error&) {
  }
}

// What the layers of a count_memory() are like.
enum class LayerKind { kPlain, kTransposed, kTwoDtypes };

// Eight layers of equal bytes. Backward keeps nothing but the gradients, and briefly needs space for
// one more; for two, where it brings a gradient into its weight's layout. finish() needs none.
void count_memory(Client& client, const BucketedDdpOptions& options, LayerKind kind) {
  constexpr std::int64_t kLayer = 64 * 64 * 4;
  constexpr std::int64_t kAll = 8 * kLayer;
  std::vector<at::Tensor> parameters(8);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool half = kind == LayerKind::kTwoDtypes && i % 2 == 0;
    const at::Tensor values = at::ones({half ? 128 : 64, 64}, half ? at::kHalf : at::kFloat);
    parameters[i] = (kind == LayerKind::kTransposed ? values.t() : values).set_requires_grad(true);
  }
  client.fact("bytes: limit", kAll + std::min(options.cap_bytes, kAll));
  MemoryMeter meter;
  const auto held = [&] {  // by tensors, and by others, such as a std::vector, but for small things
    constexpr std::int64_t kBookkeeping = 64 << 10;
    return meter.live_bytes() + std::max<std::int64_t>(meter.other_bytes() - kBookkeeping, 0);
  };
  const auto synchronizer =
      make_bucketed_ddp(parameters, {}, make_group(client.shared_from_this()), options);
  client.fact("bytes: after construction", held());
  for (int step = 0; step < 61; ++step) {
    for (const at::Tensor& parameter : parameters) {
      if (step % 3 == 0) {
        parameter.mutable_grad().reset();
      } else {
        parameter.mutable_grad().zero_();
      }
    }
    meter.reset_peak();
    // A gradient that is missing may be a view of its bucket, but not beside copies of the others.
    at::Tensor loss = at::zeros({});
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (step == 0 || step % 3 != 0 || i % 2 == 0) {
        loss = loss + (parameters[i] * 2).sum();
      }
    }
    loss.backward();
    client.fact("bytes: within backward, beside the gradients",
                meter.peak_bytes() - kAll - (kind == LayerKind::kTransposed ? 2 : 1) * kLayer);
    loss.reset();
    meter.reset_peak();
    synchronizer->finish();
    client.fact("bytes: within finish(), beside the gradients", meter.peak_bytes() - kAll);
    if (step == 20 || step == 40 || step == 60) {
      client.settle();
      client.fact("bytes: between steps, beside the gradients", held() - kAll);
      client.fact("held: handles of operations", client.live_handles());
      client.fact("held: bytes of tensors", meter.live_bytes());
    }
  }
}

}  // namespace

std::vector<Scenario> misuse() {
  const SynchronizerUnderTest some = subject({.cap_bytes = kSome});
  std::vector<Scenario> all = joined(
      {misuse_scenarios(some), second_backward_scenarios(some),
       misuse_scenarios(subject({.cap_bytes = kSome, .overlap = false}, "without overlap: "))});
  const auto add = [&](const std::string& name, const std::function<void(Client&)>& run,
                       const EdgeCases& edge_cases = {}) {
    all.push_back({name, {}, run, kErrorsTest, edge_cases});
  };
  add("wrong caps and plans", plan_wrongly);
  for (const bool overlap : {true, false}) {
    const std::string form = overlap ? "" : "without overlap: ";
    add(form + "a parameter is moved to float64",
        [overlap](Client& client) { move_to_float64(client, overlap, true); });
    add(form + "an unused parameter is moved to float64",
        [overlap](Client& client) { move_to_float64(client, overlap, false); });
    add(form + "a parameter is moved to float64, and its gradient is not",
        [overlap](Client& client) { move_to_float64(client, overlap, false, true); });
  }
  add("a second backward before finish(), of the second bucket",
      [](Client& client) { second_backward_of_a_bucket(client, 0); });
  add("a second backward before finish(), of the first bucket",
      [](Client& client) { second_backward_of_a_bucket(client, 1); });
  add("a parameter is moved to bfloat16", move_to_bfloat16, {kDtype});
  return all;
}

std::vector<Scenario> destruction() { return destruction_scenarios(subject({.cap_bytes = kSome})); }

std::vector<Scenario> memory() {
  std::vector<Scenario> all;
  constexpr std::int64_t kLayer = 4096 * 4;
  const auto add = [&](std::int64_t cap, bool overlap, LayerKind kind = LayerKind::kPlain,
                       const std::string& layers = "") {
    const BucketedDdpOptions options = {.cap_bytes = cap, .overlap = overlap};
    const EdgeCases edge_cases = kind == LayerKind::kTransposed
                                     ? EdgeCases{kStridedState, kStridedGradients}
                                 : kind == LayerKind::kTwoDtypes ? EdgeCases{kDtype}
                                                                 : EdgeCases{};
    all.push_back({std::string(overlap ? "" : "without overlap: ") + "memory with a cap of " +
                       std::to_string(cap) + " bytes" + layers,
                   {},
                   [=](Client& client) { count_memory(client, options, kind); },
                   "buckets_take_the_gradients_bytes_and_one_bucket",
                   edge_cases});
  };
  add(kLayer, true);
  add(2 * kLayer, true);
  add(8 * kLayer, true);
  add(kOne, true);
  add(2 * kLayer, false);
  add(2 * kLayer, true, LayerKind::kTransposed, ", transposed");
  add(2 * kLayer, true, LayerKind::kTwoDtypes, ", of two dtypes");
  return all;
}

}  // namespace ddp::testing
