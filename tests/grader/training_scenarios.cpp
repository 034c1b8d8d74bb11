#include "grader/training_scenarios.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>
#include <utility>

#include "grader/calls.h"
#include "grader/settings.h"

namespace ddp::testing {

namespace {

// Models: sizes, dtypes and layouts.
void add_models(Scenarios& scenarios, const ChargedTests& charged) {
  const std::vector<Layer> small = {{{65, 3}}, {{4}}, {{7, 2}}};
  const auto of = [&](at::ScalarType dtype) {
    std::vector<Layer> layers = small;
    for (Layer& layer : layers) {
      layer.dtype = dtype;
    }
    return TrainingOptions{.layers = layers};
  };
  scenarios.add("three layers, three steps", {}, charged.mean, {}, kThreeSteps);
  scenarios.add("a single layer", {}, charged.mean, {.layers = {{{5, 2}}}},
                steps(4, {Clear::kNone, Clear::kZero}));
  scenarios.add("one rank", {.ranks = 1}, charged.mean, {}, kThreeSteps);
  scenarios.add("three ranks", {.ranks = 3}, charged.mean, {}, kThreeSteps);
  scenarios.add("float64, five ranks", {.ranks = 5}, charged.mean, of(at::kDouble), kThreeSteps);
  scenarios.add("float16, nine ranks", {.ranks = 9}, charged.mean, of(at::kHalf), kThreeSteps);
  scenarios.add("bfloat16", {}, charged.mean, of(at::kBFloat16), kThreeSteps);
  if (scenarios.mixed_dtypes()) {
    scenarios.add("layers of several dtypes", {}, charged.mean,
                  {.layers = {{{5}, at::kDouble},
                              {{1}},
                              {{7}},
                              {{3}, at::kDouble},
                              {{4}, at::kHalf},
                              {{}, at::kDouble}}},
                  kThreeSteps);
    scenarios.add("the only layer of its dtype has no elements", {}, charged.mean,
                  {.layers = {{{5}}, {{0}, at::kDouble}, {{4}}}}, kThreeSteps);
  }
  scenarios.add("a frozen weight", {}, charged.mean,
                {.layers = {{{6, 3}}, {{4}, at::kFloat, false}, {{7}}}}, kThreeSteps);
  scenarios.add("a tied and a frozen weight", {}, charged.mean,
                {.layers = {{{6, 3}}, {{4}, at::kFloat, false}, {{7}}, {{2, 2}}}, .tied = true},
                kThreeSteps);
  scenarios.add("weights that are not row-major", {}, charged.mean,
                {.layers = {{{5, 3}, at::kFloat, true, Layout::kTransposed},
                            {{5, 3}, at::kFloat, true, Layout::kTransposed},
                            {{2, 3, 2, 2}, at::kFloat, true, Layout::kChannelsLast},
                            {{4}, at::kFloat, true, Layout::kEverySecond},
                            {{3, 2}, at::kFloat, false, Layout::kTransposed}}},
                steps(4, {Clear::kNone, Clear::kZero}));
  scenarios.add("weights that are views of one tensor, with equal values", {}, charged.mean,
                {.layers = {{{4}}, {{4}}, {{2, 3}}}, .memory = TrainingOptions::Memory::kOneTensor},
                kThreeSteps);
  scenarios.add("weights that are the same memory", {}, charged.mean,
                {.layers = equal_layers(3, 4), .memory = TrainingOptions::Memory::kSame},
                kThreeSteps);
  scenarios.add("all weights are frozen", {}, charged.mean,
                {.layers = {{{3}, at::kFloat, false}, {{2, 2}, at::kFloat, false}}},
                [](Training& training) { training.finish(); });
  scenarios.add("frozen weights of other dtypes come first", {}, charged.mean,
                {.layers = {{{3}, at::kHalf, false}, {{2}, at::kLong, false}, {{4, 2}}, {{5}}}},
                [](Training& training) {
                  training.set_gradient(0,
                                        at::full({3}, 1.0 + training.client().rank(), at::kHalf));
                  steps(3, {Clear::kZero, Clear::kKeep, Clear::kNone})(training);
                });
}

// Buffers, each list with one thing beside contiguous ones of float32; and weights that are frozen.
void add_state(Scenarios& scenarios) {
  const auto add = [&](const std::string& name, State state, const std::vector<Layer>& more = {}) {
    std::vector<Layer> layers = {{{6, 3}}, {{4}}};
    layers.insert(layers.end(), more.begin(), more.end());
    scenarios.add(name, {}, "construction_broadcasts_rank_0", {.layers = layers, .state = state},
                  [](Training& training) { training.step(); });
  };
  add("buffers that are not contiguous", State::kStrided,
      {{{3, 2}, at::kFloat, false, Layout::kTransposed},
       {{4}, at::kFloat, false, Layout::kEverySecond}});
  add("buffers of many dtypes", State::kDtypes, {{{5}, at::kLong, false}});
  add("buffers without elements", State::kEmpty);
  add("buffers that share memory", State::kShared);
}

// What the caller may do with gradients.
void add_gradients(Scenarios& scenarios, const ChargedTests& charged) {
  scenarios.add("gradients are replaced between steps", {}, charged.mean, {},
                steps(4, {Clear::kNone, Clear::kReplace, Clear::kReplace}));
  scenarios.add("gradients of images are replaced between steps", {}, charged.mean,
                {.layers = {{{2, 3, 2, 2}}}},
                steps(3, {Clear::kNone, Clear::kReplace, Clear::kReplace}));
  const auto share = [](Training& training) {
    // They fill it, on every other rank in the reverse order.
    std::vector<std::size_t> order = {0, 1, 2};
    if (training.client().rank() % 2 == 1) {
      std::ranges::reverse(order);
    }
    const at::Tensor all = at::zeros({65 * 3 + 4 + 7 * 2}, settings().device);
    std::int64_t used = 0;
    for (const std::size_t i : order) {
      const at::Tensor& parameter = training.parameters()[i];
      training.set_gradient(i, all.narrow(0, used, parameter.numel()).view(parameter.sizes()));
      used += parameter.numel();
    }
    training.backward();
    training.finish();
    training.step(Clear::kZero);
  };
  scenarios.add("gradients are views of one tensor", {}, charged.mean, {}, share, {kShared});
  scenarios.add("gradients exist before construction", {}, charged.mean,
                [make = scenarios.make()](Client& client) {
                  Training training(
                      client, {.layers = {{{65, 3}}, {{4}}, {{3}, at::kFloat, false}, {{7, 2}}}},
                      make);
                  training.backward();
                  training.set_gradient(2, at::full({3}, 1.0 + client.rank()));
                  training.construct();
                  steps(3, {Clear::kZero, Clear::kKeep, Clear::kNone})(training);
                });
  scenarios.add(
      "float16, large on one rank", {}, charged.mean,
      {.layers = {{{9}, at::kHalf}, {{4}, at::kHalf}}}, [](Training& training) {
        for (const double scale : {4e4, 4e4, std::numeric_limits<double>::infinity()}) {
          training.clear(Clear::kNone);
          training.backward(training.loss() * (training.client().rank() == 0 ? scale : 1));
          training.finish();
        }
      });
  scenarios.add("gradients are infinite, not a number, zero or tiny", {.ranks = 3}, charged.mean,
                {}, [](Training& training) {
                  const std::vector<double> scales = {std::numeric_limits<double>::infinity(),
                                                      std::numeric_limits<double>::quiet_NaN(), 0,
                                                      0x1p-100, 1};
                  for (std::size_t step = 0; step < scales.size(); ++step) {
                    const bool here = training.client().rank() == static_cast<int>(step % 2);
                    const bool on_all = std::isfinite(scales[step]);
                    training.clear(Clear::kNone);
                    training.backward(training.loss() * (here || on_all ? scales[step] : 1));
                    training.finish();
                  }
                });
  scenarios.add("a layer is frozen between backward and finish()", {}, charged.mean, {},
                [](Training& training) {
                  for (const bool in_scope : {false, true}) {
                    training.clear(Clear::kNone);
                    in_scope ? training.accumulate() : training.backward();
                    training.train(1, false);
                    training.finish();
                    training.train(1, true);
                  }
                  training.step();
                },
                {kThawed});
  scenarios.add(
      "layers come in another order in each step", {}, charged.mean, {}, [](Training& training) {
        const std::vector<std::vector<std::size_t>> orders = {{2, 1, 0}, {0, 2, 1}, {1, 0, 2}};
        for (const auto& order : orders) {
          training.clear(Clear::kNone);
          training.backward(training.loss_in_order(order));
          training.finish();
        }
      });
  scenarios.add("gradients that require a gradient", {}, charged.mean, {}, [](Training& training) {
    for (int step = 0; step < 3; ++step) {
      training.clear(Clear::kNone);
      for (std::size_t i = 0; i < training.parameters().size(); ++i) {
        training.set_gradient(
            i, at::zeros_like(training.parameters()[i]).detach().set_requires_grad(true));
      }
      if (step != 1) {
        training.backward();
      }
      training.finish();
    }
  });
  const std::string& undefined = charged.undefined.empty() ? charged.mean : charged.undefined;
  scenarios.add("layers that some steps do not use", {}, undefined, {}, [](Training& training) {
    const std::vector<std::vector<std::size_t>> unused = {{0}, {}, {2}, {0, 1}, {}};
    for (const auto& layers : unused) {
      training.communicate(Clear::kNone, layers);
    }
    // Zeros that finish() made are gradients like others.
    training.communicate(Clear::kNone, {0});
    training.backward();
    training.finish();
  });
  const auto leave = [](Training& training) {
    training.step();
    training.set_gradient(1, at::Tensor());
    training.backward(training.loss({0, 2}));
    training.finish();
    training.step(Clear::kZero);
    training.clear(Clear::kZero);
    training.set_gradient(1, at::Tensor());
    training.backward(training.loss({1}));
    training.finish();
  };
  scenarios.add("gradients of an earlier step are left", {}, undefined, {}, leave);
  scenarios.add("a layer is frozen after the first step", {}, charged.mean, {},
                [](Training& training) {
                  training.step();
                  training.clear(Clear::kNone);
                  training.train(1, false);
                  training.backward();
                  training.finish();
                  training.train(1, true);
                  training.step();
                },
                {kThawed});
  scenarios.add("a layer that was frozen at construction is trained", {}, charged.mean,
                {.layers = {{{5}}, {{4}, at::kFloat, false}, {{3}}}},
                [](Training& training) {
                  training.train(1, true);
                  for (int step = 0; step < 2; ++step) {
                    const double rank = training.client().rank();
                    training.clear(Clear::kNone);
                    training.backward(training.loss() + (training.parameters()[1] * rank).sum());
                    training.finish();
                  }
                },
                {kThawed});
  scenarios.add("no backward at all, then finish() three times a step", {}, undefined, {},
                [](Training& training) {
                  training.finish();
                  for (int step = 0; step < 2; ++step) {
                    training.step();
                    training.finish();
                    training.finish();
                  }
                });
}

// What leaves much evidence comes last: the more memory this process has, the longer a fork takes.
void add_large(Scenarios& scenarios, const ChargedTests& charged) {
  scenarios.add("sixty steps of several kinds", {}, charged.mean, {}, [](Training& training) {
    for (int step = 1; step <= 60; ++step) {
      training.clear(step % 2 == 0 ? Clear::kNone : Clear::kZero);
      if (step % 5 == 4) {
        training.accumulate();
      }
      training.backward();
      training.finish();
      if (step % 7 == 6) {
        training.finish();
      }
      training.update();
    }
  });
  scenarios.add("layers of 0, 1 and many elements", {}, charged.mean,
                {.layers = {{{}}, {{1}}, {{0}}, {{1'100'002}}, {{4'097}}, {{0, 3}}, {{65'536}}}},
                steps(2, {Clear::kNone, Clear::kZero}));
  scenarios.add("310 layers", {}, charged.mean, {.layers = equal_layers(310, 3)},
                steps(2, {Clear::kNone}));
  scenarios.add("450 steps", {}, charged.growth, {}, [](Training& training) {
    const HeldMeter held(training.parameters());
    training.step();
    for (int step = 1; step <= 450; ++step) {
      const Clear how = step % 2 == 0 ? Clear::kNone : Clear::kZero;
      if (std::abs(step - 256) < 3) {  // where a byte's numbers begin again
        training.step(how);
      } else {
        training.quiet_step(how);
      }
      if (step % 150 == 0) {
        held.count(training.client());
      }
    }
  });
}

// Each construction broadcasts, also what another one has sent before, and a buffer that another model
// trains.
void construct_again(Client& client, const Factory& make) {
  Training training(client, {}, make);
  std::vector<std::pair<at::Tensor, at::Tensor>> own;
  for (const auto* tensors : {&training.parameters(), &training.buffers()}) {
    for (const at::Tensor& tensor : *tensors) {
      own.emplace_back(tensor.detach(), tensor.detach().clone());
    }
  }
  std::vector<at::Tensor> buffers = training.buffers();
  buffers.push_back(at::ones({2, 3}, settings().device).t().set_requires_grad(true));
  make(client, training.listed(), buffers, training.group()).reset();
  for (const auto& [tensor, values] : own) {
    tensor.copy_(values);
  }
  training.construct();
}

// With NoSync scopes.
void add_scopes(Scenarios& scenarios) {
  const ChargedTests& charged = scenarios.charged();
  scenarios.add("two micro-batches inside NoSync, one outside", {}, charged.accumulation, {},
                [](Training& training) {
                  for (int step = 0; step < 3; ++step) {
                    training.clear(step == 1 ? Clear::kZero : Clear::kNone);
                    {
                      const Training::Scope scope(training);
                      training.accumulate();
                      training.backward();  // its end was not the outer one's
                    }
                    training.backward();
                    training.finish();
                  }
                  training.step();
                });
  scenarios.add("all micro-batches inside NoSync", {}, charged.accumulation, {},
                [](Training& training) {
                  for (int step = 0; step < 2; ++step) {
                    training.clear(Clear::kNone);
                    {
                      const Training::Scope scope(training);
                      training.backward(training.loss({1}));
                      training.finish();
                      training.backward();
                      training.finish();
                      training.backward(training.loss({1}));
                      training.finish();
                    }
                    training.finish();
                  }
                  training.clear(Clear::kNone);
                  {
                    const Training::Scope scope(training);
                    training.finish();
                  }
                  training.step();
                });
  scenarios.add("70 layers, inside NoSync only", {}, charged.accumulation,
                {.layers = equal_layers(70, 2)}, [](Training& training) {
                  {
                    const Training::Scope scope(training);
                    for (int i = 0; i < 5; ++i) {
                      training.backward();
                    }
                  }
                  training.finish();
                  training.step();
                });
  if (scenarios.mixed_dtypes()) {
    scenarios.add(
        "layers of several dtypes, inside NoSync only", {}, charged.accumulation,
        {.layers = {{{5}}, {{3}, at::kHalf}, {{4}, at::kDouble}, {{2}}, {{6}, at::kHalf}}},
        [](Training& training) {
          training.accumulate();
          training.finish();
        });
  }
  scenarios.add("all layers inside NoSync, one outside", {}, charged.accumulation, {},
                [](Training& training) {
                  for (int step = 0; step < 2; ++step) {
                    training.clear(Clear::kNone);
                    training.accumulate();
                    training.backward(training.loss({0, 2}));
                    training.finish();
                  }
                });
  scenarios.add("gradients of NoSync are replaced, or set to zero, before finish()", {},
                charged.accumulation, {}, [](Training& training) {
                  for (const Clear how : {Clear::kReplace, Clear::kZero}) {
                    training.clear(Clear::kNone);
                    training.accumulate();
                    training.clear(how);
                    training.finish();
                  }
                  training.step();
                });
  // As who drops a micro-batch with NaNs does: all, or all but a last one.
  scenarios.add("gradients of NoSync are set to none before finish()", {}, charged.accumulation, {},
                [](Training& training) {
                  for (const bool goes_on : {false, true}) {
                    training.clear(Clear::kNone);
                    {
                      const Training::Scope scope(training);
                      training.backward();
                      training.clear(Clear::kNone);
                      if (goes_on) {
                        training.backward(training.loss({0, 2}));
                      }
                    }
                    training.finish();
                  }
                  training.step();
                });
  scenarios.add("a NoSync scope between backward and finish()", {}, charged.accumulation, {},
                [](Training& training) {
                  for (int step = 0; step < 2; ++step) {
                    training.clear(Clear::kNone);
                    training.backward();
                    {
                      const Training::Scope scope(training);
                      training.finish();
                    }
                    training.finish();
                  }
                });
}

// Each is inside NoSync while the other one trains, and the hooks of both are called by turns.
void scopes_in_turns(Client& client, const Factory& make) {
  Training first(client, {}, make);
  Training second(client, {.model = 1}, make, first.group());
  first.construct();
  second.construct();
  Training* inside = &first;
  Training* outside = &second;
  for (int step = 0; step < 3; ++step) {
    inside->clear(Clear::kNone);
    outside->clear(Clear::kNone);
    {
      const Training::Scope scope(*inside);
      inside->backward(inside->loss({0}));
      outside->backward();
      inside->backward();
      outside->finish();
    }
    inside->finish();
    std::swap(inside, outside);
  }
}

// With several synchronizers, groups and threads.
void add_worlds(Scenarios& scenarios) {
  const ChargedTests& charged = scenarios.charged();
  const Factory make = scenarios.make();
  const auto three_models = [make](Client& client) {
    Training first(client, {}, make);
    TrainingOptions in_float64{.model = 1};  // as many elements as the others
    for (Layer& layer : in_float64.layers) {
      layer.dtype = at::kDouble;
    }
    Training second(client, in_float64, make, first.group());
    Training third(client, {.model = 2}, make, first.group());
    first.construct();
    second.construct();
    third.construct();
    for (int step = 0; step < 3; ++step) {
      std::vector<Training*> models = {&first, &second, &third};
      for (Training* model : models) {
        model->clear(Clear::kNone);
        model->backward();
      }
      std::rotate(models.begin(), models.begin() + step, models.end());
      for (Training* model : models) {
        model->finish();
      }
    }
  };
  scenarios.add("three models at once", {}, charged.mean, three_models, {kSeveral, kDtype});
  scenarios.add("two models, one of them inside NoSync", {}, charged.accumulation,
                [make](Client& client) { scopes_in_turns(client, make); }, {kSeveral});
  scenarios.add("another synchronizer has been there before", {}, charged.mean,
                [make](Client& client) { construct_again(client, make); },
                {kSeveral, kStridedState});
  scenarios.add("a group whose ranks are not the world's", {.ranks = 3, .subgroups = {{2, 1}, {0}}},
                charged.mean, [make](Client& client) {
                  const GroupIndex group = client.rank() == 0 ? 2 : 1;
                  Training training(client, {.model = group, .group = group}, make);
                  training.construct();
                  kThreeSteps(training);
                });
  scenarios.add("models on two groups", {.ranks = 4, .subgroups = {{0, 1}, {2, 3}}}, charged.mean,
                [make](Client& client) {
                  Training of_all(client, {}, make);
                  const auto half = static_cast<GroupIndex>(1 + client.rank() / 2);
                  Training of_half(client, {.model = half, .group = half}, make);
                  of_all.construct();
                  of_half.construct();
                  for (int step = 0; step < 3; ++step) {
                    of_half.step();
                    of_all.step();
                  }
                },
                {kSeveral});
  scenarios.add("backward or finish() on another thread", {}, charged.mean, {},
                [](Training& training) {
                  const auto elsewhere = [&](void (Training::*call)()) {
                    std::thread([&] {
                      training.client().come_home();
                      (training.*call)();
                    }).join();
                    training.client().come_home();
                  };
                  for (int step = 0; step < 3; ++step) {
                    training.clear(Clear::kNone);
                    step % 2 == 0 ? elsewhere(&Training::backward) : training.backward();
                    step == 1 ? elsewhere(&Training::finish) : training.finish();
                  }
                });
  scenarios.add("RANK, WORLD_SIZE and modes are another program's", {}, charged.mean,
                [make](Client& client) {
                  choose_unusual_modes();
                  setenv("RANK", "7", 1);
                  setenv("WORLD_SIZE", "11", 1);
                  setenv("LOCAL_RANK", "5", 1);
                  Training training(client, {}, make);
                  training.construct();
                  kThreeSteps(training);
                });
  scenarios.add("construction while autograd is off", {}, charged.mean, [make](Client& client) {
    Training training(client, {}, make);
    {
      const at::NoGradGuard no_grad;
      training.construct();
    }
    kThreeSteps(training);
  });
  scenarios.add("gradients are functions, as a penalty on them asks for", {}, charged.mean, {},
                [](Training& training) {
                  const auto backward = [&] {
                    training.clear(Clear::kNone);
                    training.backward(training.loss().square(), /*create_graph=*/true);
                  };
                  {
                    const Training::Scope scope(training);
                    backward();
                  }
                  training.finish();
                  backward();
                  training.finish();
                });
  scenarios.add("every operation takes ten minutes", {.slow = true}, charged.mean, {}, kThreeSteps);
  const Layer transposed = {{5, 3}, at::kFloat, true, Layout::kTransposed};
  scenarios.add("every operation is complete when its launch returns",
                {.hold = false, .prompt = true}, charged.mean,
                {.layers = {transposed, {{4}}, transposed, transposed, {{4}}}},
                [](Training& training) {
                  steps(2, {Clear::kNone, Clear::kZero})(training);
                  training.accumulate({1, 4});
                  training.finish();
                });
}

}  // namespace

std::vector<Scenario> training_scenarios(const SynchronizerUnderTest& subject) {
  Scenarios scenarios(subject);
  add_models(scenarios, subject.charged);
  add_state(scenarios);
  add_gradients(scenarios, subject.charged);
  add_scopes(scenarios);
  add_worlds(scenarios);
  add_drawn(scenarios);
  add_large(scenarios, subject.charged);
  return scenarios.take();
}

}  // namespace ddp::testing
