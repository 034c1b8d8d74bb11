#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "ddp/referee/client.h"
#include "grader/calls.h"
#include "grader/memory_account.h"
#include "grader/settings.h"
#include "grader/training_scenarios.h"
#include "scenarios.h"

// Scenarios for errors, lifetime and memory.

namespace ddp::testing {

namespace {

const OptimizerFactory kMomentum = [](std::vector<at::Tensor> shards) {
  return make_inner(Inner::kMomentum, std::move(shards));
};

// The last may be wrong.
std::vector<at::Tensor> eight_weights() {
  std::vector<at::Tensor> weights(8);
  for (at::Tensor& weight : weights) {
    weight = at::ones({5, 3}, settings().device).set_requires_grad(true);
  }
  weights[3] = weights[1];  // tied
  return weights;
}

void construct_wrongly(Client& client) {
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  const auto with = [&](const std::string& what, const OptimizerFactory& factory,
                        std::int64_t cap) {
    attempt(client, what, [&] {
      static_cast<void>(
          make_sharded_optimizer(eight_weights(), {}, group, factory, {.cap_bytes = cap}));
    });
  };
  with("a cap of 0 bytes", kMomentum, 0);
  with("a cap of -5 bytes", kMomentum, -5);
  with("a factory that is empty", {}, kSome);
  with(
      "a factory that returns nothing", [](auto) { return nullptr; }, kSome);
  int made = 0;
  with(
      "a factory that returns nothing for the second bucket",
      [&](std::vector<at::Tensor> shards) {
        return made++ == 1 ? nullptr : make_inner(Inner::kSgd, std::move(shards));
      },
      kEach);
}

// Then a step as any other.
void call_wrongly(Client& client) {
  const auto weights = eight_weights();
  const auto optimizer =
      make_sharded_optimizer(weights, {}, make_group(client.shared_from_this()), kMomentum);
  weights[0].sum().backward();
  for (const double max_norm : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    attempt(client, "clip_grad_norm(" + std::to_string(max_norm) + ")",
            [&] { optimizer->clip_grad_norm(max_norm); });
  }
  {
    const NoSync scope(*optimizer);
    attempt(client, "step() inside NoSync", [&] { optimizer->step(); });
    attempt(client, "clip_grad_norm() inside NoSync", [&] { optimizer->clip_grad_norm(1); });
  }
  optimizer->step();
  weights[0].sum().backward();
  optimizer->clip_grad_norm(1);
  attempt(client, "a second backward, between clip_grad_norm() and step()",
          [&] { weights[0].sum().backward(); });
}

// All weights are in one bucket, so that nothing is in flight when the error is found, in the second
// step, whether or not that uses the weight.
void move_to_float64(Client& client, bool overlap, bool used) {
  const std::vector<at::Tensor> weights = eight_weights();
  const auto optimizer = make_sharded_optimizer(weights, {}, make_group(client.shared_from_this()),
                                                kMomentum, {.cap_bytes = kOne, .overlap = overlap});
  const auto step = [&](std::size_t count) {
    at::Tensor loss = at::zeros({}, settings().device);
    for (std::size_t i = 0; i < count; ++i) {
      loss = loss + weights[i].sum().to(at::kFloat);
    }
    loss.backward();
    optimizer->step();
  };
  step(8);
  weights[7].set_data(weights[7].detach().to(at::kDouble));
  attempt(client,
          std::string("a parameter") + (used ? "" : " without a gradient") +
              " that has been moved to float64 (index 7)",
          [&] { step(used ? 8 : 7); });
}

at::Tensor loss_of_every(std::size_t nth, const std::vector<at::Tensor>& parameters) {
  at::Tensor loss = at::zeros({});
  for (std::size_t i = 0; i < parameters.size(); i += nth) {
    loss = loss + (parameters[i] * 2).sum();
  }
  return loss;
}

// Eight layers of equal bytes, and AdamW, which keeps two numbers for each. Backward keeps nothing but
// the gradients, of which NoSync has left all in some steps, and briefly needs space for one more.
void count_memory(Client& client, const ShardedOptimizerOptions& options) {
  constexpr std::int64_t kLayer = 64 * 60 * 4;
  constexpr std::int64_t kAll = 8 * kLayer;
  std::vector<at::Tensor> parameters(8);
  for (at::Tensor& parameter : parameters) {
    parameter = at::ones({64, 60}).set_requires_grad(true);
  }
  const auto ranks = static_cast<std::int64_t>(client.world().ranks);
  const std::int64_t bucket = std::min(std::max(options.cap_bytes, kLayer), kAll);
  const std::int64_t held = 4 * kAll / ranks;
  MemoryAccount account(client,
                        {{kLayer, "a layer's gradient"},
                         {bucket, "a flat bucket"},
                         {bucket / ranks, "a shard, its gradient or one of AdamW's moments"}});
  const auto optimizer = make_sharded_optimizer(
      parameters, {}, make_group(client.shared_from_this()),
      [](std::vector<at::Tensor> shards) { return make_inner(Inner::kAdamW, std::move(shards)); },
      options);
  for (int step = 0; step < 61; ++step) {
    account.reset();
    if (step % 4 == 2) {
      const NoSync scope(*optimizer);
      loss_of_every(1, parameters).backward();
    }
    loss_of_every(step % 3 == 1 ? 2 : 1, parameters).backward();
    account.peak("backward's tensors and what is held", held + kAll + 2 * bucket + kLayer);
    if (step % 2 == 1) {
      optimizer->clip_grad_norm(1);
    }
    account.reset();
    optimizer->step();
    account.peak("step()'s tensors and what is held", held + kAll + 2 * bucket);
    account.held("shards, their gradients and AdamW's state between steps", held);
    if (step == 20 || step == 40 || step == 60) {
      account.count();
    }
  }
}

}  // namespace

std::vector<Scenario> misuse() {
  const SynchronizerUnderTest& some = subject({.options = {.cap_bytes = kSome}});
  std::vector<Scenario> all =
      joined({misuse_scenarios(some), second_backward_scenarios(some),
              misuse_scenarios(subject({.options = {.cap_bytes = kSome, .overlap = false}},
                                       "without overlap: "))});
  for (Scenario& scenario : all) {
    scenario.name = in_own_words(scenario.name);
  }
  all.push_back({"wrong caps and factories", {}, construct_wrongly, kErrorsTest});
  all.push_back({"wrong calls", {}, call_wrongly, kErrorsTest});
  for (const bool overlap : {true, false}) {
    for (const bool used : {true, false}) {
      all.push_back({std::string(overlap ? "" : "without overlap: ") + "a parameter " +
                         (used ? "" : "without a gradient ") + "is moved to float64",
                     {},
                     [=](Client& client) { move_to_float64(client, overlap, used); },
                     kErrorsTest});
    }
  }
  return all;
}

std::vector<Scenario> destruction() {
  return destruction_scenarios(subject({.options = {.cap_bytes = kSome}}));
}

std::vector<Scenario> memory() {
  constexpr std::int64_t kLayer = 64 * 60 * 4;
  std::vector<Scenario> all;
  for (const ShardedOptimizerOptions& options : {ShardedOptimizerOptions{.cap_bytes = kLayer},
                                                 {.cap_bytes = 2 * kLayer},
                                                 {.cap_bytes = kOne},
                                                 {.cap_bytes = 2 * kLayer, .overlap = false}}) {
    all.push_back({std::string(options.overlap ? "" : "without overlap: ") +
                       "memory with a cap of " + std::to_string(options.cap_bytes) + " bytes",
                   {.ranks = 4},
                   [options](Client& client) { count_memory(client, options); },
                   kMemoryTest});
  }
  return all;
}

}  // namespace ddp::testing
