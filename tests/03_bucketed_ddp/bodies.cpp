#include "bodies.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "plan.h"
#include "support/toy_bodies.h"
#include "support/training_bodies.h"

namespace ddp::testing {

namespace {

// The bodies in which buckets of another size, or without overlap, are another path.
std::vector<Body> a_few_of(const SynchronizerUnderTest& form) {
  return named(
      training_bodies(form),
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
Body in_other_orders(const std::string& name, int ranks, std::int64_t cap,
                     const std::function<std::vector<std::size_t>(int, int)>& order_of,
                     at::ScalarType of_odd_layers = at::kFloat) {
  Rare rare = rare_of(World{.ranks = ranks});
  if (of_odd_layers != at::kFloat) {
    rare.insert(kDtype);
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
          rare};
}

std::vector<Body> orders() {
  std::vector<Body> bodies;
  for (const std::int64_t cap : {kEach, std::int64_t{60}, kOne}) {
    const std::string of = ", cap " + std::to_string(cap);
    bodies.push_back(
        in_other_orders("layers in another order than the plan's" + of, 2, cap, [](int, int step) {
          return std::vector<std::vector<std::size_t>>{
              {3, 5, 4, 0, 2, 1}, {0, 1, 3, 5, 4, 2}, {2, 1, 4, 5}}[step];
        }));
    bodies.push_back(in_other_orders(
        "layers in another order on each rank" + of, 3, cap, [](int rank, int step) {
          std::vector<std::size_t> order = {5, 2, 4, 1, 3, 0};
          std::rotate(order.begin(), order.begin() + rank + step, order.end());
          order.resize(6 - step);
          return order;
        }));
    bodies.push_back(in_other_orders(
        "layers of two dtypes in another order than the plan's" + of, 2, cap,
        [](int, int) { return std::vector<std::size_t>{0, 1, 2, 4, 3, 5}; }, at::kDouble));
  }
  return bodies;
}

// Layers differ in elements, so that no two launches look alike.
Body chain(const std::string& name, const std::vector<std::int64_t>& elements, int ranks,
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
          rare_of(World{.ranks = ranks})};
}

}  // namespace

Factory bucketed(const BucketedDdpOptions& options) {
  return [options](Client& client, const std::vector<at::Tensor>& parameters,
                   const std::vector<at::Tensor>& buffers, const ProcessGroupPtr& group) {
    if (client.place().phase == Phase::kConstruction) {
      client.value("plan", as_tensor(assign_buckets(parameters, options.cap_bytes)));
      client.value("cap", at::scalar_tensor(options.cap_bytes, at::kLong));
      client.value(options.overlap ? "overlap" : "no overlap", at::Tensor());
    }
    static BucketedDdpOptions given;  // which the caller uses for something else afterwards
    given = options;
    auto synchronizer = make_bucketed_ddp(parameters, buffers, group, given);
    given = {.cap_bytes = 1, .overlap = !options.overlap};
    return synchronizer;
  };
}

SynchronizerUnderTest subject(const BucketedDdpOptions& options, const std::string& form) {
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

std::vector<Body> same_order() {
  const SynchronizerUnderTest one = subject({.cap_bytes = kOne}, "one: ");
  return joined(
      {training_bodies(subject({.cap_bytes = kSome})),
       recovery_bodies(subject({.cap_bytes = kSome})),
       a_few_of(subject({.cap_bytes = kEach}, "each: ")), a_few_of(one),
       named(training_bodies(one), {"310 layers", "layers of 0, 1 and many elements"}, one.form)});
}

std::vector<Body> other_orders() {
  return joined({orders(), rank_dependent_bodies(subject({.cap_bytes = kSome})),
                 rank_dependent_bodies(subject({.cap_bytes = kEach}, "each: "))});
}

std::vector<Body> overlapping() { return joined({same_order(), other_orders()}); }

std::vector<Body> without_overlap() {
  const auto sync = subject({.cap_bytes = kSome, .overlap = false}, "without overlap: ");
  return joined({a_few_of(sync), rank_dependent_bodies(sync)});
}

std::vector<Body> small_models() {
  return {toy_body(2, plain_models(), bucketed({.cap_bytes = kSome}), kTrainingTest)};
}

std::vector<Body> all_models() {
  return {toy_body(4, {same_order_models()}, bucketed({.cap_bytes = kEach}), kTrainingTest)};
}

std::vector<Body> branching_models() {
  std::vector<Body> all = {
      toy_body(3, {{ToyKind::kRankBranch}}, bucketed({.cap_bytes = kSome}), kOrderTest),
      toy_body(4, {{ToyKind::kRankBranch}}, bucketed({.cap_bytes = kEach}), kOrderTest)};
  for (Body& body : all) {
    body.name += ", with a branch";
  }
  return all;
}

std::vector<Body> timed() {
  std::vector<Body> all;
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

}  // namespace ddp::testing
