#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <utility>

#include "ddp/collectives.h"
#include "ddp/gradient_hooks.h"
#include "ddp/referee/client.h"
#include "grader/calls.h"
#include "grader/settings.h"
#include "grader/training.h"
#include "grader/training_scenarios.h"

// Scenarios in which a synchronizer's life is not the ordinary one.

namespace ddp::testing {

namespace {

using Layers = std::vector<std::size_t>;

void backward_twice(Training& training, const Layers& first, const Layers& second,
                    const std::function<void()>& between) {
  // With create_graph autograd does not accumulate in place, so nothing in flight is overwritten:
  // the error has to come from the synchronizer itself.
  training.backward(training.loss_in_order(first), /*create_graph=*/true);
  between();
  attempt(training.client(), "a second backward outside NoSync before finish()",
          [&] { training.backward(training.loss_in_order(second), /*create_graph=*/true); });
}

// The second backward is one through both models; the other one has done its part before this one's.
void backward_of_both(Training& training, Training& other) {
  training.backward(training.loss(), /*create_graph=*/true);
  const Training::Scope silent(other);
  const at::Tensor later = training.loss();
  attempt(training.client(), "a second backward outside NoSync, through another model, too",
          [&] { training.backward(later + other.loss(), /*create_graph=*/true); });
}

void backward_twice_beside_another(Client& client, const Factory& make,
                                   const std::function<void(Training&, Training&)>& run) {
  Training training(client, {}, make);
  Training other(client, {.model = 1}, make, training.group());
  training.construct();
  other.construct();
  run(training, other);
}

// The backward of the second step fails, on all ranks or on rank 1 only.
void train_after_a_failure(Client& client, const Factory& make, bool inside_no_sync,
                           const std::function<void(Training&)>& train, bool on_all = true) {
  Training training(client, {}, make);
  bool fails = false;
  const GradientHook hook = on_gradient_ready(training.parameters()[1], [&](const at::Tensor&) {
    TORCH_CHECK(!fails, "a hook of somebody else fails");
  });
  training.construct();
  training.step();
  fails = on_all || client.rank() == 1;
  try {
    std::optional<Training::Scope> scope;
    if (inside_no_sync) {
      scope.emplace(training);
    }
    training.backward();
  } catch (const c10::Error&) {
    fails = false;
  }
  training.abandon();
  train(training);
}

// What that one has left belongs to the caller.
void train_another_model_next(Client& client, const Factory& make) {
  Training first(client, {}, make);
  Training second(client, {.model = 1}, make, first.group());
  first.construct();
  first.step();
  first.destroy();
  second.construct();
  second.step();
  second.step();  // whose gradients are others than those of the first model's only step
  first.clear(Clear::kNone);
}

// What that one had begun with is no business of this one.
void train_after_anothers_error(Client& client, const Factory& make) {
  const auto weight = [] { return at::ones({2, 3}, settings().device).set_requires_grad(true); };
  const std::vector<at::Tensor> weights = {weight(), weight()};
  const at::Tensor dense = weights[0].sum();
  const at::Tensor rows = at::arange(2, at::TensorOptions(at::kLong).device(settings().device));
  const at::Tensor sparse =
      at::embedding(weights[1], rows, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false,
                    /*sparse=*/true)
          .sum();
  auto other = make(client, weights, {}, make_group(client.shared_from_this()));
  try {
    (dense + sparse).backward();
    other->finish();
  } catch (const c10::Error&) {  // scenarios of its own look at it
  }
  other.reset();
  Training training(client, {}, make);
  training.construct();
  training.step();
  training.step(Clear::kZero);
}

}  // namespace

std::vector<Scenario> second_backward_scenarios(const SynchronizerUnderTest& subject) {
  const auto scenario = [&](const std::string& what, const std::function<void(Client&)>& run) {
    return Scenario{"a second backward before finish()" + what, {}, run, subject.charged.errors};
  };
  const auto prompt = [](Scenario scenario) {
    scenario.world = {.hold = false, .prompt = true};
    return scenario;
  };
  const auto of_layers = [&](const std::string& what, const Layers& first, const Layers& second,
                             bool complete = false) {
    return scenario(what, [make = subject.make, first, second, complete](Client& client) {
      Training training(client, {}, make);
      training.construct();
      backward_twice(training, first, second, [&] {
        if (complete) {  // what was launched before this one
          all_reduce(at::ones({1}), make_group(client.shared_from_this()));
        }
      });
    });
  };
  const Layers all = {2, 1, 0};
  return {of_layers("", all, all),
          scenario(", after one inside NoSync",
                   [all, make = subject.make](Client& client) {
                     Training training(client, {}, make);
                     training.construct();
                     training.accumulate();
                     backward_twice(training, all, all, [] {});
                   }),
          of_layers(", of the first layer", all, {0}),
          of_layers(", of the layer in the middle", all, {1}),
          of_layers(", each of one layer", {2}, {2}),
          of_layers(" when the first's operations are complete", all, all, true),
          prompt(of_layers(" when each operation is complete at once", all, all)),
          scenario(", after another synchronizer's finish()",
                   [all, make = subject.make](Client& client) {
                     backward_twice_beside_another(
                         client, make, [&](Training& training, Training& other) {
                           backward_twice(training, all, all, [&] { other.finish(); });
                         });
                   }),
          scenario(", together with another synchronizer's",
                   [make = subject.make](Client& client) {
                     backward_twice_beside_another(client, make, backward_of_both);
                   }),
          scenario(", after a backward that failed", [all, make = subject.make](Client& client) {
            train_after_a_failure(client, make, false, [&](Training& training) {
              training.clear(Clear::kNone);
              backward_twice(training, all, all, [] {});
            });
          })};
}

namespace {

// The synchronizer exists during forward, but no longer during backward.
void destroy_before_backward(Client& client, const Factory& make, bool by_exception) {
  Training training(client, {}, make);
  training.construct();
  training.step();
  training.clear(Clear::kNone);
  const at::Tensor loss = training.loss();
  try {
    const std::shared_ptr<void> owner(nullptr, [&](void*) { training.destroy(); });
    TORCH_CHECK(!by_exception, "whatever ends a training early");
  } catch (const c10::Error&) {
  }
  client.fact(kDestroyed, 1);
  try {
    training.backward(loss);
  } catch (const std::exception& error) {
    client.threw("a backward after the synchronizer was destroyed", error.what());
  }
  training.hand_in_local();
  training.hand_in(kAlone);
}

// Several synchronizers hook the same parameters. Destroying one removes only its own hooks.
void destroy_one_of_two(Client& client, const Factory& make) {
  Training training(client, {}, make);
  training.construct();
  training.step();
  auto second =
      make(client, training.listed(), training.buffers(), make_group(client.shared_from_this()));
  second.reset();
  training.step();
  auto third =
      make(client, training.listed(), training.buffers(), make_group(client.shared_from_this()));
  training.replace_synchronizer(std::move(third));
  training.step();
}

// What NoSync has left is lost.
void destroy_after_no_sync(Client& client, const Factory& make) {
  Training training(client, {}, make);
  training.construct();
  training.step();
  training.clear(Clear::kNone);
  {
    const Training::Scope scope(training);
    training.backward();
    training.finish();
  }
  training.destroy();
}

void destroy_many(Client& client, const Factory& make) {
  Training training(client, {}, make);
  training.construct();
  training.step();
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  const HeldMeter held(training.parameters());
  for (int count = 1; count <= 450; ++count) {
    static_cast<void>(make(client, training.listed(), {}, group));
    if (count % 150 == 0) {
      held.count(client);
    }
  }
}

}  // namespace

std::vector<Scenario> destruction_scenarios(const SynchronizerUnderTest& subject) {
  const auto scenario = [&](const std::string& name, int ranks, RunWith run) {
    return scenario_of(subject, name, ranks, run, subject.charged.lifetime);
  };
  const auto destroyed = [](Client& client, const Factory& make) {
    destroy_before_backward(client, make, /*by_exception=*/false);
  };
  const auto destroyed_by_exception = [](Client& client, const Factory& make) {
    destroy_before_backward(client, make, /*by_exception=*/true);
  };
  return {scenario("the synchronizer is destroyed before backward", 2, destroyed),
          scenario("the synchronizer is destroyed by an exception", 2, destroyed_by_exception),
          scenario("the only rank's synchronizer is destroyed before backward", 1, destroyed),
          scenario("one of several synchronizers is destroyed", 3, destroy_one_of_two),
          scenario("the synchronizer is destroyed after NoSync", 2, destroy_after_no_sync),
          scenario("450 more synchronizers, one after another", 2, destroy_many)};
}

std::vector<Scenario> recovery_scenarios(const SynchronizerUnderTest& subject) {
  const auto scenario = [&](const std::string& name, RunWith run) {
    return scenario_of(subject, name, 2, run, subject.charged.mean);
  };
  return {scenario("a hook of somebody else throws",
                   [](Client& client, const Factory& make) {
                     train_after_a_failure(client, make, /*inside_no_sync=*/false,
                                           [](Training& training) { training.step(); });
                   }),
          scenario("a hook of somebody else throws inside NoSync",
                   [](Client& client, const Factory& make) {
                     train_after_a_failure(client, make, /*inside_no_sync=*/true,
                                           [](Training& training) {
                                             training.clear(Clear::kNone);
                                             training.accumulate();
                                             training.finish();
                                             training.step();
                                           });
                   }),
          scenario("another synchronizer has thrown", train_after_anothers_error),
          scenario("another model's synchronizer comes next", train_another_model_next)};
}

Scenario failure_on_one_rank(const SynchronizerUnderTest& subject) {
  const auto run = [](Client& client, const Factory& make) {
    train_after_a_failure(
        client, make, /*inside_no_sync=*/false, [](Training& training) { training.step(); },
        /*on_all=*/false);
  };
  return scenario_of(subject, "a hook of somebody else throws on one rank", 3, run,
                     subject.charged.missing);
}

}  // namespace ddp::testing
