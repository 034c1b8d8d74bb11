#include <ATen/ATen.h>

#include <limits>

#include "support/body_list.h"
#include "support/training_bodies.h"

namespace ddp::testing {

namespace {

// Layers that only some ranks use, another set in every step; the last layer of all is never used.
void use_by_turns(Training& training) {
  const int ranks = training.client().world().ranks;
  const auto layers = static_cast<int>(training.parameters().size());
  training.finish();  // before any backward: nothing is ready anywhere, which is harmless
  for (int step = 0; step < 4; ++step) {
    std::vector<std::size_t> unused;
    for (int layer = 0; layer < layers; ++layer) {
      if (layer + 1 == layers || (layer + step) % ranks != training.client().rank()) {
        unused.push_back(layer);
      }
    }
    training.clear(step == 2 ? Clear::kZero : Clear::kNone);
    training.backward(training.loss(unused) * (step == 3 ? 0 : 1));
    training.finish();
  }
}

// The gradients stay the tensors that finish() has left.
void zero_in_place(Training& training) {
  for (std::size_t layer = 0; layer < training.parameters().size(); ++layer) {
    const at::Tensor gradient = training.parameters()[layer].grad();
    training.set_gradient(layer, gradient.zero_());
  }
}

}  // namespace

std::vector<Body> rank_dependent_bodies(const SynchronizerUnderTest& subject) {
  Bodies bodies(subject);
  const std::string& charged = subject.charged.missing;
  bodies.add("layers that one rank uses", {}, charged, {}, use_by_turns);
  bodies.add("layers that one of four ranks uses", {.ranks = 4}, charged,
             {.layers = {{{3}}, {{2, 2}}, {{3}}, {{3}}, {{}}, {{3}}}}, use_by_turns);
  bodies.add("a rank without a backward", {.ranks = 5}, charged,
             {.layers = {{{65, 3}, at::kDouble}, {{4}, at::kDouble}}}, [](Training& training) {
               for (int step = 0; step < 15; ++step) {  // three for each rank
                 if (step < 10) {
                   training.clear(Clear::kNone);
                 } else {
                   zero_in_place(training);
                 }
                 if (training.client().rank() != step % 5) {
                   training.backward();
                 }
                 training.finish();
               }
             });
  bodies.add("weights are not a number where gradients are missing", {}, charged, {},
             [](Training& training) {
               const double nan = std::numeric_limits<double>::quiet_NaN();
               training.fill(nan);
               training.backward(training.loss() * nan);
               training.finish();
               use_by_turns(training);
             });
  bodies.add("a layer that rank 1 never uses", {}, charged, {}, [](Training& training) {
    for (int step = 0; step < 8; ++step) {
      training.clear(Clear::kNone);
      training.backward(training.client().rank() == 1 ? training.loss({1}) : training.loss());
      training.finish();
    }
  });
  bodies.add("a frozen layer's gradients are the caller's", {}, charged, {},
             [](Training& training) {
               training.step();
               training.train(1, false);
               training.clear(Clear::kNone);
               training.set_gradient(1, at::full({4}, 1.0 + training.client().rank()));
               training.backward();
               training.finish();
             });
  bodies.add("a rank that accumulates inside NoSync only", {.ranks = 3}, charged, {},
             [](Training& training) {
               for (int step = 0; step < 3; ++step) {
                 training.clear(Clear::kNone);
                 {
                   const Training::Scope scope(training);
                   training.backward(training.loss({static_cast<std::size_t>(step)}));
                 }
                 if (training.client().rank() != 1) {
                   training.backward();
                 }
                 training.finish();
               }
             });
  bodies.add("rank 1 sets gradients of NoSync to none before finish()", {}, charged, {},
             [](Training& training) {
               training.clear(Clear::kNone);
               training.accumulate();
               if (training.client().rank() == 1) {
                 training.clear(Clear::kNone);
               }
               training.finish();
               training.step();
             });
  add_drawn_by_rank(bodies);
  return joined({bodies.take(), {failure_on_one_rank(subject)}});
}

}  // namespace ddp::testing
