#include <ATen/ATen.h>

#include <sstream>

#include "ddp/libtorch_versions.h"
#include "ddp/meters/memory_meter.h"
#include "grader/calls.h"
#include "grader/evidence_view.h"
#include "grader/settings.h"
#include "scenarios.h"

// What is in use in memory.

namespace ddp::testing {

namespace {

constexpr std::int64_t kWide = 16;  // channels
const Shape kShape = {2048, kWide, 2, 2};
constexpr std::int64_t kElements = 2048 * kWide * 2 * 2;

at::Tensor ones() { return at::ones({kWide}, settings().device); }

std::string described(const at::Tensor& input) {
  std::ostringstream text;
  text << ", " << dtype_name(input.scalar_type()) << " " << input.sizes() << ",";
  return text.str();
}

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
  return by == By::kBatch               ? " in training"
         : by == By::kRunningStatistics ? " in evaluation"
                                        : " in evaluation by the rank's own batch";
}

// Hands in the bytes in use after forward in addition to its output, when only the graph keeps the
// input; the index is what the input takes. And those in use after backward, which should be none.
void keep(Uses& uses, const Source& source, By by, bool graph) {
  const at::AutoGradMode mode(graph);
  const at::Tensor leaf = random_numbers(kShape, 11).to(source.dtype).set_requires_grad(true);
  BatchNormTensors tensors = {.weight = ones().set_requires_grad(true),
                              .bias = ones().set_requires_grad(true)};
  if (by != By::kOwnBatch) {
    tensors.running_mean = ones();
    tensors.running_var = ones();
  }
  const std::int64_t before = heap_bytes();
  at::Tensor input = source.make(leaf);
  const std::string of_input = source.name + described(input);
  at::Tensor output = sync_batch_norm(input, tensors, uses.group(), {.training = by == By::kBatch});
  input.reset();
  const auto bytes = static_cast<std::int64_t>(output.nbytes());
  const std::int64_t kept = heap_bytes() - before - bytes;
  uses.client().fact("kept: " + of_input + to_string(by) + (graph ? "" : " without a graph"), kept,
                     graph ? bytes : 0);
  if (graph) {
    output.backward(at::ones_like(output));
    output.reset();
    leaf.mutable_grad().reset();
    uses.client().fact("kept: " + of_input + to_string(by) + " when backward has ended",
                       heap_bytes() - before, 0);
  }
}

void keep_all(Uses& uses) {
  const Source first = sources().front();
  for (int i = 0; i < 2; ++i) {  // what libtorch allocates once is no one's business
    const at::Tensor output =
        sync_batch_norm(first.make(random_numbers({4, kWide}, 1).set_requires_grad(true)),
                        {ones(), ones()}, uses.group());
    output.backward(at::ones_like(output));
  }
  const std::vector<Source> all = sources();
  for (const Source& source : all) {
    for (const bool graph : {true, false}) {
      for (const By by : {By::kBatch, By::kRunningStatistics, By::kOwnBatch}) {
        try {
          keep(uses, source, by, graph);
        } catch (const std::exception&) {
          if (&source == &all.front()) {  // what is wrong with another is another test's business
            throw;
          }
        }
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
        step % 3 == 0 ? sync_batch_norm(input, {module->weight, module->bias}, uses.group())
                      : module->forward(input);
    if (step % 2 == 0) {
      output.backward(at::ones_like(output));
    }
    if (step % 150 == 0) {
      held.count(uses.client());
    }
  }
}

std::string of_dtype(std::int64_t element_size) {
  return element_size == 2   ? "one 16-bit tensor"
         : element_size == 4 ? "one float32 tensor"
         : element_size == 8 ? "one float64 tensor"
                             : "";
}

// ": as much as the input and one float32 tensor of its shape".
std::string as_tensors(std::int64_t bytes, std::int64_t input_bytes) {
  const auto an_element = [](std::int64_t all) { return (all + kElements / 2) / kElements; };
  const std::string more = of_dtype(an_element(bytes - input_bytes));
  const std::string instead = of_dtype(an_element(bytes));
  std::string text;
  if (!more.empty()) {
    text = std::string(": as much as ") + (input_bytes > 0 ? "the input and " : "") + more +
           " of its shape";
  }
  if (input_bytes > 0 && !instead.empty()) {
    text += (text.empty() ? ": as much as " : ", or ") + instead + " in the input's place";
  }
  return text;
}

}  // namespace

// All cases at once: whoever sees one at a time mends one at a time.
Finding little_is_kept(const Evidence& evidence) {
  constexpr std::int64_t kFewNumbers = 65'536;  // and autograd's nodes
  return first_rank(evidence, [](const SeenList& said) -> Finding {
    std::string cases;
    for (const Seen& seen : said) {
      const auto what = rest_of(seen.text, "kept: ");
      if (seen.kind == EventKind::kFact && what && seen.number > seen.index + kFewNumbers) {
        cases += "\n  " + *what + ": " + std::to_string(seen.number) + " bytes" +
                 as_tensors(seen.number, seen.index);
      }
    }
    return cases.empty()
               ? ""
               : "kept is more than the input as it came and a few numbers for each channel "
                 "(nothing "
                 "without a graph, nor after backward):" +
                     cases + "\n  What backward needs in another dtype or layout it can make anew.";
  });
}

std::vector<Scenario> memory() {
  const char* const test = "backward_keeps_no_more_than_the_input";
  return joined(
      {with_ranks({2}, "memory", test, keep_all), with_ranks({2}, "450 uses", test, many_uses)});
}

}  // namespace ddp::testing
