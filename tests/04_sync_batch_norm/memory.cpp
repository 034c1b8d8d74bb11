#include <ATen/ATen.h>

#include "bodies.h"
#include "ddp/meters/memory_meter.h"
#include "support/held_meter.h"
#include "support/settings.h"

// What is in use in memory.

namespace ddp::testing {

namespace {

constexpr std::int64_t kWide = 16;  // channels

at::Tensor ones() { return at::ones({kWide}, settings().device); }

struct Source {
  std::string name;
  at::ScalarType dtype;
  std::function<at::Tensor(const at::Tensor& leaf)> make;  // keeps nothing for backward
};

std::vector<Source> sources() {
  return {{"a contiguous input", at::kFloat, [](const at::Tensor& leaf) { return leaf * 2; }},
          {"a half-precision input", at::kHalf, [](const at::Tensor& leaf) { return leaf * 2; }},
          {"a channels_last input", at::kFloat,
           [](const at::Tensor& leaf) {
             return (leaf * 2).contiguous(at::MemoryFormat::ChannelsLast);
           }},
          {"a transposed input", at::kFloat,
           [](const at::Tensor& leaf) { return (leaf * 2).transpose(0, 2); }}};
}

enum class By { kBatch, kRunningStatistics, kOwnBatch };

std::string to_string(By by) {
  return by == By::kBatch               ? ""
         : by == By::kRunningStatistics ? " in evaluation"
                                        : " in evaluation by the rank's own batch";
}

// Hands in the bytes in use after forward in addition to its output, when only the graph keeps the
// input; the index is what the input takes. And those in use after backward, which should be none.
void keep(Uses& uses, const Source& source, By by, bool graph) {
  const at::AutoGradMode mode(graph);
  const at::Tensor leaf =
      random_numbers({2048, kWide, 2, 2}, 11).to(source.dtype).set_requires_grad(true);
  BatchNormTensors tensors = {.weight = ones().set_requires_grad(true),
                              .bias = ones().set_requires_grad(true)};
  if (by != By::kOwnBatch) {
    tensors.running_mean = ones();
    tensors.running_var = ones();
  }
  const std::int64_t before = heap_bytes();
  at::Tensor input = source.make(leaf);
  at::Tensor output = sync_batch_norm(input, tensors, uses.group(), {.training = by == By::kBatch});
  input.reset();
  const auto bytes = static_cast<std::int64_t>(output.nbytes());
  const std::int64_t kept = heap_bytes() - before - bytes;
  uses.client().fact("kept: " + source.name + to_string(by) + (graph ? "" : " without a graph"),
                     kept, graph ? bytes : 0);
  if (graph) {
    output.sum().backward();
    output.reset();
    leaf.mutable_grad().reset();
    uses.client().fact("kept: " + source.name + ", which has ended", heap_bytes() - before, 0);
  }
}

void keep_all(Uses& uses) {
  const Source first = sources().front();
  for (int i = 0; i < 2; ++i) {  // what libtorch allocates once is no one's business
    sync_batch_norm(first.make(random_numbers({4, kWide}, 1).set_requires_grad(true)), {},
                    uses.group())
        .sum()
        .backward();
  }
  for (const Source& source : sources()) {
    for (const bool graph : {true, false}) {
      for (const By by : {By::kBatch, By::kRunningStatistics, By::kOwnBatch}) {
        keep(uses, source, by, graph);
      }
    }
  }
}

// Steps that leave nothing behind, with a backward or without.
void many_uses(Uses& uses) {
  const HeldMeter held({});
  const NormModule module = uses.module({.num_features = kWide});
  const at::Tensor leaf = random_numbers({2, kWide, 3}, 11).to(at::kFloat).set_requires_grad(true);
  for (int step = 1; step <= 450; ++step) {
    leaf.mutable_grad().reset();
    module->weight.mutable_grad().reset();
    module->bias.mutable_grad().reset();
    const at::Tensor input = leaf * 2;
    module->train(step % 4 != 0);
    const at::Tensor output =
        step % 3 == 0 ? sync_batch_norm(input, {}, uses.group()) : module->forward(input);
    if (step % 2 == 0) {
      output.sum().backward();
    }
    if (step % 150 == 0) {
      held.count(uses.client());
    }
  }
}

}  // namespace

const std::vector<Body>& memory() {
  const char* const test = "backward_keeps_no_more_than_the_input";
  static const std::vector<Body> bodies = joined(
      {with_ranks({2}, "memory", test, keep_all), with_ranks({2}, "450 uses", test, many_uses)});
  return bodies;
}

}  // namespace ddp::testing
