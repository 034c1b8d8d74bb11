#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "support/calls.h"
#include "support/settings.h"
#include "support/training_bodies.h"

namespace ddp::testing {

namespace {

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

}  // namespace

void add_scopes(Bodies& bodies) {
  const ChargedTests& charged = bodies.charged();
  bodies.add("two micro-batches inside NoSync, one outside", {}, charged.accumulation, {},
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
  bodies.add("all micro-batches inside NoSync", {}, charged.accumulation, {},
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
  bodies.add("70 layers, inside NoSync only", {}, charged.accumulation,
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
  if (bodies.mixed_dtypes()) {
    bodies.add("layers of several dtypes, inside NoSync only", {}, charged.accumulation,
               {.layers = {{{5}}, {{3}, at::kHalf}, {{4}, at::kDouble}, {{2}}, {{6}, at::kHalf}}},
               [](Training& training) {
                 training.accumulate();
                 training.finish();
               });
  }
  bodies.add("all layers inside NoSync, one outside", {}, charged.accumulation, {},
             [](Training& training) {
               for (int step = 0; step < 2; ++step) {
                 training.clear(Clear::kNone);
                 training.accumulate();
                 training.backward(training.loss({0, 2}));
                 training.finish();
               }
             });
  bodies.add("gradients of NoSync are replaced, or set to zero, before finish()", {},
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
  bodies.add("gradients of NoSync are set to none before finish()", {}, charged.accumulation, {},
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
  bodies.add("a NoSync scope between backward and finish()", {}, charged.accumulation, {},
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

void add_worlds(Bodies& bodies) {
  const ChargedTests& charged = bodies.charged();
  const Factory make = bodies.make();
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
  bodies.add("three models at once", {}, charged.lifetime, three_models, {kSeveral, kDtype});
  bodies.add("another synchronizer has been there before", {}, charged.mean,
             [make](Client& client) { construct_again(client, make); }, {kSeveral, kStridedState});
  bodies.add("a group whose ranks are not the world's", {.ranks = 3, .subgroups = {{2, 1}, {0}}},
             charged.mean, [make](Client& client) {
               const GroupIndex group = client.rank() == 0 ? 2 : 1;
               Training training(client, {.model = group, .group = group}, make);
               training.construct();
               kThreeSteps(training);
             });
  bodies.add("models on two groups", {.ranks = 4, .subgroups = {{0, 1}, {2, 3}}}, charged.mean,
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
  bodies.add("backward or finish() on another thread", {}, charged.mean, {},
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
  bodies.add("RANK, WORLD_SIZE and modes are another program's", {}, charged.mean,
             [make](Client& client) {
               choose_rare_modes();
               setenv("RANK", "7", 1);
               setenv("WORLD_SIZE", "11", 1);
               setenv("LOCAL_RANK", "5", 1);
               Training training(client, {}, make);
               training.construct();
               kThreeSteps(training);
             });
  bodies.add("construction while autograd is off", {}, charged.mean, [make](Client& client) {
    Training training(client, {}, make);
    {
      const at::NoGradGuard no_grad;
      training.construct();
    }
    kThreeSteps(training);
  });
  bodies.add("gradients are functions, as a penalty on them asks for", {}, charged.mean, {},
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
  bodies.add("every operation takes ten minutes", {.slow = true}, charged.mean, {}, kThreeSteps);
  const Layer transposed = {{5, 3}, at::kFloat, true, Layout::kTransposed};
  bodies.add("every operation is complete when its launch returns", {.hold = false, .prompt = true},
             charged.mean, {.layers = {transposed, {{4}}, transposed, transposed, {{4}}}},
             [](Training& training) {
               steps(2, {Clear::kNone, Clear::kZero})(training);
               training.accumulate({1, 4});
               training.finish();
             });
}

}  // namespace ddp::testing
