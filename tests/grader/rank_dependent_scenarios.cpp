#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <random>

#include "grader/settings.h"
#include "grader/training_scenarios.h"

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

// Scenarios drawn from the seed: what the others do one at a time comes together here, in one model, and
// some of it late. What is drawn is the order and the places; how much there is of it is not.

using Random = std::mt19937_64;

constexpr int kAll = 18;  // steps

// Rank -1: what all ranks draw alike.
Random random_of(int rank = -1) { return Random(settings().seed * 64 + rank + 1); }

Layout drawn_layout(std::size_t dimensions, Random& random) {
  std::vector<Layout> layouts = {Layout::kRowMajor, Layout::kSlice};
  if (dimensions > 0) {
    layouts.push_back(Layout::kEverySecond);
  }
  if (dimensions > 1) {
    layouts.insert(layouts.end(), 3, Layout::kTransposed);
  }
  return layouts[random() % layouts.size()];
}

// Every shape in every dtype, some frozen.
std::vector<Layer> drawn_layers(bool mixed_dtypes, bool strided, Random& random) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {}, {1}, {0}, {6}, {601}, {3, 2}, {0, 3}, {2, 5, 3}, {3, 1, 2, 2}, {2, 3, 2, 2, 2}};
  std::vector<Layer> layers;
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    for (const auto& shape : shapes) {
      layers.push_back({shape, mixed_dtypes ? dtype : at::kFloat, true,
                        strided ? drawn_layout(shape.size(), random) : Layout::kRowMajor});
    }
  }
  std::ranges::shuffle(layers, random);
  for (const std::size_t frozen : {0, 8, 21, 33}) {
    layers[frozen] = {.shape = {3}, .trainable = false};
  }
  layers.push_back({{4, 3}});  // may be tied
  return layers;
}

// Where the gradients of a step come from.
enum class Way { kOneBackward, kMicroBatches, kNoSyncOnly };

void take_step(Training& training, Way way, const std::vector<std::size_t>& layers) {
  if (way != Way::kOneBackward) {
    const Training::Scope scope(training);
    training.backward(training.loss_in_order(layers));
    training.finish();
  }
  std::vector<at::Tensor> held;  // by the caller, who looks at none of them
  for (const at::Tensor& parameter : training.parameters()) {
    held.push_back(parameter.grad());
  }
  if (way != Way::kNoSyncOnly) {
    training.backward(training.loss_in_order(layers));
  }
  training.finish();
  training.update();
}

// After the first `complete` steps each leaves out another third of the layers. Which, and the order of
// the others, is drawn from `own`.
void train_as_drawn(Training& training, const std::vector<Clear>& clears, int complete,
                    Random random, Random own) {
  std::vector<Way> ways;
  ways.reserve(kAll);
  for (int step = 0; step < kAll; ++step) {
    ways.push_back(static_cast<Way>(step % 3));
  }
  std::ranges::shuffle(ways, random);
  std::vector<std::size_t> layers;
  for (std::size_t i = 0; i < training.parameters().size(); ++i) {
    if (training.parameters()[i].requires_grad()) {
      layers.push_back(i);
    }
  }
  for (int step = 0; step < kAll; ++step) {
    std::ranges::shuffle(layers, own);
    const std::size_t unused = step < complete ? 0 : layers.size() / 3;
    const Clear drawn = clears[random() % clears.size()];
    // Gradients are undefined once, whatever is drawn: a scenario has the same edge cases for each seed.
    training.clear(step == complete ? Clear::kNone : drawn);
    take_step(training, ways[step], {layers.begin() + unused, layers.end()});
  }
}

void add_drawn_by_rank(Scenarios& scenarios) {
  Random random = random_of();
  const TrainingOptions options{
      .layers = drawn_layers(scenarios.mixed_dtypes(), /*strided=*/false, random)};
  scenarios.add("all kinds of layers and steps, drawn by each rank", {.ranks = 3},
                scenarios.charged().missing, options, [random](Training& training) {
                  train_as_drawn(training, {Clear::kNone, Clear::kZero}, /*complete=*/12, random,
                                 random_of(training.client().rank()));
                });
}

}  // namespace

void add_drawn(Scenarios& scenarios) {
  Random random = random_of();
  const TrainingOptions options{
      .layers = drawn_layers(scenarios.mixed_dtypes(), /*strided=*/true, random), .tied = true};
  scenarios.add("all kinds of layers and steps, drawn from the seed", {.ranks = 3},
                scenarios.charged().mean, options, [random](Training& training) {
                  train_as_drawn(training,
                                 {Clear::kNone, Clear::kZero, Clear::kReplace, Clear::kKeep}, kAll,
                                 random, random);
                });
}

std::vector<Scenario> rank_dependent_scenarios(const SynchronizerUnderTest& subject) {
  Scenarios scenarios(subject);
  const std::string& charged = subject.charged.missing;
  scenarios.add("layers that one rank uses", {}, charged, {}, use_by_turns);
  scenarios.add("layers that one of four ranks uses", {.ranks = 4}, charged,
                {.layers = {{{3}}, {{2, 2}}, {{3}}, {{3}}, {{}}, {{3}}}}, use_by_turns);
  scenarios.add("a rank without a backward", {.ranks = 5}, charged,
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
  scenarios.add("weights are not a number where gradients are missing", {}, charged, {},
                [](Training& training) {
                  const double nan = std::numeric_limits<double>::quiet_NaN();
                  training.fill(nan);
                  training.backward(training.loss() * nan);
                  training.finish();
                  use_by_turns(training);
                });
  scenarios.add("a layer that rank 1 never uses", {}, charged, {}, [](Training& training) {
    for (int step = 0; step < 8; ++step) {
      training.clear(Clear::kNone);
      training.backward(training.client().rank() == 1 ? training.loss({1}) : training.loss());
      training.finish();
    }
  });
  scenarios.add("a frozen layer's gradients are the caller's", {}, charged, {},
                [](Training& training) {
                  training.step();
                  training.train(1, false);
                  training.clear(Clear::kNone);
                  training.set_gradient(1, at::full({4}, 1.0 + training.client().rank()));
                  training.backward();
                  training.finish();
                });
  scenarios.add("a rank that accumulates inside NoSync only", {.ranks = 3}, charged, {},
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
  scenarios.add("rank 1 sets gradients of NoSync to none before finish()", {}, charged, {},
                [](Training& training) {
                  training.clear(Clear::kNone);
                  training.accumulate();
                  if (training.client().rank() == 1) {
                    training.clear(Clear::kNone);
                  }
                  training.finish();
                  training.step();
                });
  add_drawn_by_rank(scenarios);
  return joined({scenarios.take(), {failure_on_one_rank(subject)}});
}

}  // namespace ddp::testing
