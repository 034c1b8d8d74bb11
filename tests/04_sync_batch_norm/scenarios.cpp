
#include "scenarios.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include "ddp/referee/access_watch.h"
#include "ddp/referee/client.h"
#include "grader/settings.h"

// What ranks do with the function and with modules.

namespace ddp::testing {

namespace {

const char* const kOutputTest = "output_is_batch_norm_of_the_whole_batch";
const char* const kGradientsTest = "gradients_are_those_of_the_whole_batch";

// --- Training by the function ---

// Inputs with each number of dimensions.
void each_shape(Uses& uses) {
  const double momenta[] = {0.1, 0.7, 1.0, 0.0};
  int i = 0;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const Shape& shape : shapes()) {
      uses.run(
          {.shape = shape, .dtype = dtype, .mode = {.momentum = momenta[i++ % 4], .eps = 0.03}});
    }
    for (const Wanted wanted : {kInput, kWeight, kBias}) {
      uses.run({.dtype = dtype, .wants = wanted});
    }
    uses.run({.dtype = dtype, .wants = kNothing, .note = "nothing requires a gradient"});
    uses.run({.dtype = dtype, .graph = false, .note = "without a graph"});
  }
  for (const Shape& shape : shapes()) {
    uses.run(
        {.shape = shape, .dtype = at::kDouble, .of_weight = at::kFloat, .of_bias = at::kFloat});
  }
  uses.run({.dtype = at::kDouble,
            .of_weight = at::kFloat,
            .note = "weight and running variance of float32"});
  uses.run(
      {.dtype = at::kDouble, .of_bias = at::kFloat, .note = "bias and running mean of float32"});
}

// Each combination of tensors.
void missing_tensors(Uses& uses) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (int present = 0; present < 7; ++present) {
      uses.run({.dtype = dtype,
                .weight = present % 2 == 1,
                .bias = present / 2 % 2 == 1,
                .running = present / 4 == 1,
                .note = "some of weight, bias and statistics are undefined"});
    }
  }
}

// Only the graph keeps the input.
void temporary_inputs(Uses& uses) {
  for (const Shape& shape : shapes()) {
    uses.run({.shape = shape, .temporary = true});
  }
  const NormModule module = uses.module({.num_features = 3});
  uses.run({.temporary = true}, module);
  for (const bool running : {true, false}) {
    uses.run({.running = running, .mode = {.training = false}, .temporary = true});
  }
  module->eval();
  uses.run({.temporary = true}, module);
}

void many_sizes(Uses& uses) {
  int i = 0;
  for (const std::int64_t hidden : {128, 256, 512, 1024, 1100}) {
    for (const std::int64_t batch : {8, 21}) {
      uses.run({.shape = {batch, hidden}, .dtype = i++ % 2 == 0 ? at::kFloat : at::kDouble});
    }
  }
  uses.run({.shape = {3, 2500, 2}});
}

void one_small_use(Uses& uses) {
  uses.run({.shape = {4, 3}});
  uses.run({.shape = {5, 2, 3}, .dtype = at::kDouble});
}

void not_a_number(Uses& uses) {
  uses.run({.nan = true, .wants = kInput, .note = "rank 0's input has a NaN"});
}

void many_steps(Uses& uses) {
  const NormModule module = uses.module({.num_features = 3});
  for (int step = 0; step < 70; ++step) {
    uses.run({.shape = {3 + step % 3, 3}, .mean = 0.1 * step}, step % 2 == 0 ? module : nullptr);
  }
}

// Backward may run twice through a graph, and gradients add up.
void two_backwards(Uses& uses) {
  Use& use = *uses.add({});
  use.forward();
  use.backward_of(use.output, use.upstream * 0.25, /*keep_graph=*/true);
  use.backward_of(use.output, use.upstream * 0.75);
}

// The gradient that the function gets is a view of the caller's, which nobody else has.
void backward_through_a_view(Uses& uses) {
  Use& use = *uses.add({.note = "backward through a view"});
  use.forward();
  use.backward_of(use.output.reshape({-1}), use.upstream.reshape({-1}));
}

void one_input_twice(Uses& uses) {
  Use& first = *uses.add({});
  first.forward();
  Use& second = *uses.add({.note = "an input that has been normalized before"});
  second.input = first.input;
  second.replace_tensors(second.tensors);  // the same; the input is another
  second.run();
}

void weight_of_zero(Uses& uses) {
  for (const bool training : {true, false}) {
    for (const bool all : {false, true}) {
      Use& use = *uses.add(
          {.mode = {.training = training}, .note = all ? "all weights are 0" : "a weight is 0"});
      use.tensors.weight.detach().narrow(0, all ? 0 : 1, all ? 3 : 1).zero_();
      use.run();
    }
  }
}

// Only eps keeps its deviation from being zero.
void constant_channel(Uses& uses) {
  for (const double eps : {0.03, 1e-8}) {
    Use& use = *uses.add({.mode = {.eps = eps}, .note = "a channel has one value on all ranks"});
    use.input.detach().select(1, 1).fill_(2);
    use.run();
  }
  Use& use = *uses.add({.note = "a channel is zero on rank 0"});
  use.input.detach().select(1, 1).mul_(uses.client().rank());
  use.run();
}

// What follows may write its result over the output, as an in-place ReLU does, also where that is x_hat.
void output_is_overwritten(Uses& uses) {
  for (const auto& [training, affine] : {std::pair(true, true), {false, true}, {true, false}}) {
    Use& use = *uses.add({.weight = affine,
                          .bias = affine,
                          .mode = {.training = training},
                          .wants = affine ? kInput | kWeight | kBias : kInput,
                          .note = "followed by an in-place ReLU"});
    use.forward();
    const at::Tensor output = use.output;
    use.output = output.detach().clone();
    output.variable_data().relu_();
    use.upstream.mul_(use.output > 0);
    use.backward_of(output, use.upstream);
  }
}

void backward_elsewhere(Uses& uses) {
  Use& use = *uses.add({.note = "backward on another thread"});
  use.forward();
  std::thread([&] {
    uses.client().come_home();
    use.backward();
  }).join();
  uses.client().come_home();
}

void group_is_dropped(Uses& uses) {
  Use& use = *uses.add({.note = "the caller's handle of the group is gone"});
  use.forward();
  uses.drop_groups();
  const c10::weak_intrusive_ptr<c10d::ProcessGroup> weak = use.drop_group();
  use.backward();
  use.output = use.output.detach();  // the graph is gone, too
  if (!weak.expired()) {
    uses.client().fact("the group is there still", 1);
  }
}

void module_is_dropped(Uses& uses) {
  ProcessGroupPtr group = make_group(uses.client().shared_from_this());
  const c10::weak_intrusive_ptr<c10d::ProcessGroup> weak(group);
  NormModule module = make_sync_batch_norm({.num_features = 3}, std::move(group));
  module->to(settings().device);
  Use& use = *uses.add({.note = "the module is gone"}, std::exchange(module, nullptr));
  use.forward();
  use.drop_group();  // and with it the module
  if (weak.expired()) {
    uses.client().fact("the group is gone", 1);
  }
  use.backward();
}

}  // namespace

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{24, 5},         {9, 6, 7},    {8, 3, 5, 4},
                                         {7, 4, 2, 3, 5}, {8, 1, 3, 3}, {6, 3, 1}};
  return all;
}

Scenario scenario_of(const std::string& name, int ranks, const std::string& charged_to,
                     const std::function<void(Uses&)>& run) {
  return {name,
          {.ranks = ranks, .hold = false},
          [run](Client& client) {
            // As launchers do it: the whole world's size, not a group's.
            setenv("WORLD_SIZE", std::to_string(client.world().ranks).c_str(), /*replace=*/1);
            Uses uses(client);
            run(uses);
            uses.end();
          },
          charged_to,
          edge_cases_of(World{.ranks = ranks}),
          charged_to == kOutputTest ? kGradientsTest : ""};
}

std::vector<Scenario> with_ranks(const std::vector<int>& ranks, const std::string& name,
                                 const std::string& charged_to,
                                 const std::function<void(Uses&)>& run) {
  std::vector<Scenario> all;
  for (const int count : ranks) {
    const std::string text = ", " + std::to_string(count) + (count == 1 ? " rank" : " ranks");
    all.push_back(scenario_of(name + text, count, charged_to, run));
  }
  return all;
}

std::vector<Scenario> plain() {
  auto all =
      joined({with_ranks({2, 1}, "one small batch", kOutputTest, one_small_use),
              with_ranks({2}, "each shape", kOutputTest, each_shape),
              with_ranks({2}, "missing tensors", kOutputTest, missing_tensors),
              with_ranks({1, 3, 4}, "shapes and tensors", kOutputTest,
                         [](Uses& uses) {
                           each_shape(uses);
                           missing_tensors(uses);
                         }),
              modes(),
              with_ranks({2}, "many channels", kOutputTest, many_sizes),
              with_ranks({5, 6, 9}, "one small batch", kOutputTest, one_small_use),
              with_ranks({2}, "seventy steps", kOutputTest, many_steps),
              with_ranks({2}, "two backwards through a graph", kGradientsTest, two_backwards),
              with_ranks({2}, "backward through a view", kGradientsTest, backward_through_a_view),
              with_ranks({2}, "one input twice", kOutputTest, one_input_twice),
              with_ranks({2}, "temporary inputs", kGradientsTest, temporary_inputs),
              with_ranks({2}, "weights of zero", kGradientsTest, weight_of_zero),
              with_ranks({2}, "not a number", kOutputTest, not_a_number),
              with_ranks({2}, "a constant channel", kGradientsTest, constant_channel),
              tiny_deviations(),
              with_ranks({2}, "an in-place ReLU", kGradientsTest, output_is_overwritten),
              with_ranks({2}, "backward on another thread", kGradientsTest, backward_elsewhere),
              with_ranks({2}, "the group is dropped", kGradientsTest, group_is_dropped),
              with_ranks({2}, "the module is dropped", kGradientsTest, module_is_dropped),
              groups()});
  all.push_back(scenario_of("a slow network", 2, kOutputTest, one_small_use));
  all.back().world.slow = true;
  return all;
}

std::vector<Scenario> all_uses() {
  return joined({plain(), interleaved(), upstreams(), shards(), large_means(), low_precision(),
                 layouts(), evaluation(), modules()});
}

}  // namespace ddp::testing
