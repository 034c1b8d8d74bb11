#include <ATen/ATen.h>

#include <memory>
#include <optional>

#include "ddp/batch_norm.h"
#include "norm_case.h"
#include "support/compare.h"
#include "support/grading.h"

// The module: its state, and how it changes.

namespace ddp::testing {

namespace {

using Layer = std::shared_ptr<BatchNorm>;

template <typename Items>
std::string names_of(const Items& items) {
  std::string names;
  for (const auto& item : items) {
    names += (names.empty() ? "" : " ") + item.key();
  }
  return names;
}

// Holds a layer as a model does.
class Parent : public torch::nn::Module {
 public:
  explicit Parent(Layer layer) : layer_(register_module("norm", std::move(layer))) {}

 private:
  Layer layer_;
};

void expect_state(Rank& rank) {
  rank.recorder().clear();
  const BatchNormOptions options = {.num_features = 4, .eps = 0.5, .momentum = 0.25};
  const Layer layer = make_sync_batch_norm(options, rank.group());
  const Parent parent(layer);
  EXPECT_EQ(names_of(parent.named_parameters()), "norm.weight norm.bias");
  EXPECT_EQ(names_of(parent.named_buffers()),
            "norm.running_mean norm.running_var norm.num_batches_tracked");
  EXPECT_TRUE(layer->is_training()) << "a new module is in training mode";
  EXPECT_EQ(layer->options().eps, options.eps);
  EXPECT_EQ(layer->options().momentum, options.momentum);
  EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 0);
  const Layer plain = make_sync_batch_norm(
      {.num_features = 4, .affine = false, .track_running_stats = false}, rank.group());
  EXPECT_EQ(names_of(plain->named_parameters()) + names_of(plain->named_buffers()), "")
      << "without affine and track_running_stats there is nothing to be kept";
  EXPECT_TRUE(rank.recorder().operations().empty()) << "construction communicated";
}

// An input for the step, with 4 channels.
CaseOptions batch_of(int step, at::ScalarType dtype) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {9, 4}, {6, 4, 3}, {5, 4, 2, 2}, {8, 4, 1, 2, 2}};
  return {.shape = shapes[step % shapes.size()],
          .dtype = dtype,
          .affine = false,
          .eps = 0.5,
          .mean = 0.5 + step};
}

// One step of training: its output, and the state in which it leaves the layer. `momentum`: the one
// that the layer is expected to use.
void expect_step(const Rank& rank, BatchNorm& layer, int step, double momentum) {
  NormCase norm(rank, batch_of(step, layer.weight.scalar_type()));
  const at::Tensor mean_before = layer.running_mean.clone();
  const at::Tensor var_before = layer.running_var.clone();
  const auto count = layer.num_batches_tracked.item<double>();
  norm.expect_output(layer.forward(norm.input_shard()).detach(), " of the module");
  norm.tensors.running_mean = layer.running_mean;
  norm.tensors.running_var = layer.running_var;
  const std::string note = " of the module, after " + std::to_string(step + 1) +
                           " batches, with momentum " +
                           (layer.options().momentum ? std::to_string(momentum) : "none");
  norm.expect_running(mean_before, var_before, momentum, note);
  EXPECT_EQ(layer.num_batches_tracked.item<double>(), count + 1)
      << "num_batches_tracked after " << step + 1 << " batches";
}

// Four steps, with an evaluation in between.
void expect_steps(const Rank& rank, BatchNorm& layer) {
  for (int step = 0; step < 4; ++step) {
    expect_step(rank, layer, step, layer.options().momentum.value_or(1.0 / (step + 1)));
    layer.eval();
    layer.forward(random_numbers({3, 4}, 9).to(layer.weight.scalar_type()));
    layer.train();
  }
}

// The state may have been loaded from a file.
void expect_steps_from_saved_state(const Rank& rank) {
  const Layer layer =
      make_sync_batch_norm({.num_features = 4, .eps = 0.5, .momentum = std::nullopt}, rank.group());
  layer->to(settings().device, at::kDouble);  // which also converts the count
  layer->num_batches_tracked.fill_(7);
  layer->running_mean.fill_(3);
  expect_step(rank, *layer, 0, 1.0 / 8);
  expect_step(rank, *layer, 1, 1.0 / 9);
}

void expect_use_of_parameters(const Rank& rank) {
  const Layer layer = make_sync_batch_norm({.num_features = 3}, rank.group());
  layer->to(settings().device, at::kDouble);
  const NormCase norm(rank, {.shape = {8, 3, 2}, .dtype = at::kDouble});
  {
    const at::NoGradGuard no_grad;
    layer->weight.copy_(norm.tensors.weight);
    layer->bias.copy_(norm.tensors.bias);
  }
  const at::Tensor input = norm.input_shard();
  const at::Tensor output = layer->forward(input);
  norm.expect_output(output.detach(), " of the module");
  output.backward(norm.shard(norm.upstream()));
  norm.expect_input_gradient(input.grad(), " through the module");
  norm.tensors.weight.mutable_grad() = layer->weight.grad();
  norm.tensors.bias.mutable_grad() = layer->bias.grad();
  norm.expect_parameter_gradients(" of the module");
}

void expect_steps_without_running(const Rank& rank) {
  const Layer layer = make_sync_batch_norm(
      {.num_features = 4, .eps = 0.5, .track_running_stats = false}, rank.group());
  layer->to(settings().device, at::kDouble);
  const NormCase norm(rank, batch_of(0, at::kDouble));
  norm.expect_output(layer->forward(norm.input_shard()).detach(),
                     " of the module without running statistics");
  EXPECT_FALSE(layer->running_mean.defined());
  EXPECT_FALSE(layer->num_batches_tracked.defined());
}

const GradedTest kModule{
    {.name = "module_keeps_the_state_of_batch_norm",
     .points = 1,
     .hint = "Each forward in training counts one batch, in num_batches_tracked itself, and then "
             "uses options().momentum, or 1 / that count if it is none."},
    [] {
      run_worlds({1, 2, 3}, [](Rank& rank) {
        expect_state(rank);
        for (const std::optional<double> momentum :
             {std::optional(0.25), std::optional(0.0), std::optional<double>()}) {
          const Layer layer = make_sync_batch_norm(
              {.num_features = 4, .eps = 0.5, .momentum = momentum}, rank.group());
          layer->to(settings().device);
          expect_steps(rank, *layer);
        }
        expect_steps_from_saved_state(rank);
        expect_use_of_parameters(rank);
        expect_steps_without_running(rank);
      });
    }};

}  // namespace

}  // namespace ddp::testing
