#include <algorithm>
#include <random>

#include "support/body_list.h"
#include "support/settings.h"

// Bodies drawn from the seed: what the others do one at a time comes together here, in one model, and
// some of it late. What is drawn is the order and the places; how much there is of it is not.

namespace ddp::testing {

namespace {

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
    training.clear(clears[random() % clears.size()]);
    take_step(training, ways[step], {layers.begin() + unused, layers.end()});
  }
}

}  // namespace

void add_drawn(Bodies& bodies) {
  Random random = random_of();
  const TrainingOptions options{
      .layers = drawn_layers(bodies.mixed_dtypes(), /*strided=*/true, random), .tied = true};
  bodies.add("all kinds of layers and steps, drawn from the seed", {.ranks = 3},
             bodies.charged().mean, options, [random](Training& training) {
               train_as_drawn(training, {Clear::kNone, Clear::kZero, Clear::kReplace, Clear::kKeep},
                              kAll, random, random);
             });
}

void add_drawn_by_rank(Bodies& bodies) {
  Random random = random_of();
  const TrainingOptions options{.layers =
                                    drawn_layers(bodies.mixed_dtypes(), /*strided=*/false, random)};
  bodies.add("all kinds of layers and steps, drawn by each rank", {.ranks = 3},
             bodies.charged().missing, options, [random](Training& training) {
               train_as_drawn(training, {Clear::kNone, Clear::kZero}, /*complete=*/12, random,
                              random_of(training.client().rank()));
             });
}

}  // namespace ddp::testing
