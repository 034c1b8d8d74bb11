#include <ATen/ATen.h>

#include <cmath>
#include <string>

#include "grader/calls.h"
#include "scenarios.h"

// Uses in training whose inputs, groups or order are special in some way.

namespace ddp::testing {

namespace {

// How many samples each rank has, none of them none, or some.
std::vector<Shape> divisions(int ranks, bool empty) {
  switch (ranks) {
    case 2:
      return empty ? std::vector<Shape>{{0, 6}, {6, 0}}
                   : std::vector<Shape>{{7, 2}, {1, 8}, {1, 1}};
    case 3:
      return empty ? std::vector<Shape>{{0, 4, 2}, {4, 0, 0}, {0, 0, 4}, {1, 0, 1}}
                   : std::vector<Shape>{{5, 1, 3}};
    default:
      return empty ? std::vector<Shape>{{0, 0, 5, 1}}
                   : std::vector<Shape>{{1, 2, 3, 4}, {1, 1, 1, 1}};
  }
}

void divided(Uses& uses, bool empty) {
  const int ranks = uses.client().world().ranks;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const NormModule module = uses.module({.num_features = 3}, dtype);
    for (const Shape& rows : divisions(ranks, empty)) {
      uses.run({.shape = {0, 3}, .rows = rows, .dtype = dtype});
      uses.run({.shape = {0, 2, 3, 2}, .rows = rows, .dtype = dtype});
      uses.run({.shape = {0, 3, 5}, .rows = rows, .dtype = dtype}, module);
      uses.run({.shape = {0, 2, 1, 3, 2}, .rows = rows, .dtype = dtype});
    }
  }
}

void unequal_shards(Uses& uses) {
  divided(uses, /*empty=*/false);
  Shape rows(uses.client().world().ranks, 24);
  rows.back() = 3000;
  uses.run({.shape = {24, 3, 2}, .rows = rows, .note = "a large shard"});
}

void empty_shards(Uses& uses) {
  divided(uses, /*empty=*/true);
  const int ranks = uses.client().world().ranks;
  Shape rows(ranks, 24);
  rows.front() = 0;
  uses.run({.shape = {24, 32}, .rows = rows, .mean = 1e4});
  rows.back() = 3000;
  uses.run({.shape = {24, 3, 2}, .rows = rows, .note = "a large shard"});
  Shape one(ranks, 0);
  one.back() = 1;
  uses.run({.shape = {0, 3, 2, 2}, .rows = one, .note = "one sample on all ranks together"});
  uses.run({.shape = {0, 3, 2}, .rows = one, .graph = false});
  uses.run({.shape = {0, 3, 2}, .rows = one, .wants = kWeight | kBias});
}

// A rank's message has the same dtype whether it has samples or not.
void narrow_empty_shards(Uses& uses) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    for (const Shape& rows : std::vector<Shape>{{0, 6}, {6, 0}}) {
      uses.run({.shape = {0, 3, 2}, .rows = rows, .dtype = dtype});
    }
    const NormModule module = uses.module({.num_features = 3});
    module->eval();
    uses.run({.shape = {0, 3}, .dtype = dtype}, module);
  }
}

void some_without_gradient(Uses& uses) {
  for (const Upstream upstream : {Upstream::kFirstHalf, Upstream::kUndefinedOnOdd}) {
    for (const Shape& shape : shapes()) {
      uses.run({.shape = shape, .upstream = upstream});
    }
    uses.run({.shape = {32, 128}, .upstream = upstream});
    const NormModule module = uses.module({.num_features = 3});
    uses.run({.upstream = upstream}, module);
  }
}

void large_mean(Uses& uses) {
  for (const double mean : {1e4, -1e4}) {
    uses.run({.shape = {24, 32}, .mean = mean});
    uses.run({.shape = {12, 9, 2, 3}, .mean = mean});
    uses.run({.shape = {24, 600}, .mean = mean});
    uses.run({.shape = {5, 32}, .mean = mean});
  }
  for (const double mean : {1e2, 1e4, 1e6}) {
    uses.run({.shape = {24, 8},
              .dtype = at::kDouble,
              .mean = mean,
              .note = "a mean of " + std::to_string(std::lround(mean)) + " deviations"});
  }
  for (const bool running : {true, false}) {
    uses.run({.shape = {64, 5}, .running = running, .mode = {.training = false}, .mean = 1e4});
  }
}

// Thousands of products of which only a small sum is left.
void products(Uses& uses) {
  uses.run({.shape = {16384, 6}, .mean = 1e4, .upstream = Upstream::kBlocks});
}

// Thousands of values of about 40: their sum exceeds half's largest number, and bfloat16's eight
// bits cannot represent it accurately.
void low_precisions(Uses& uses) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    for (const at::ScalarType of_tensors : {at::kFloat, dtype}) {
      uses.run({.shape = {2048, 3},
                .dtype = dtype,
                .of_weight = of_tensors,
                .of_bias = of_tensors,
                .mean = 40});
      uses.run({.shape = {4, 3, 16, 24},
                .dtype = dtype,
                .of_weight = of_tensors,
                .of_bias = of_tensors,
                .mean = 40});
    }
    uses.run({.dtype = dtype, .of_weight = at::kFloat, .mean = 3});
    uses.run({.shape = {7, 1, 10'001}, .dtype = dtype});  // more than half can count
    uses.run({.shape = {24, 32}, .dtype = dtype, .mean = 1000});
    const NormModule module = uses.module({.num_features = 3});
    uses.run({.shape = {16, 3, 8}, .dtype = dtype, .mean = 3}, module);
    module->eval();
    uses.run({.shape = {16, 3, 8}, .dtype = dtype, .mean = 3}, module);
  }
}

// The variance is not to be had from 1 / sqrt(variance + eps), of which eps is nearly all.
void tiny_deviation(Uses& uses) {
  Use& use =
      *uses.add({.mode = {.momentum = 1, .eps = 1}, .note = "eps is a million times the variance"});
  use.input.detach().mul_(1e-3);
  use.run();
}

// As after a checkpoint that one rank has loaded: batch statistics have nothing to do with it.
void statistics_of_each_rank(Uses& uses) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    Use& use = *uses.add({.dtype = dtype, .note = "running statistics differing between ranks"});
    use.tensors.running_mean.add_(2 + 5 * uses.client().rank());
    use.tensors.running_var.mul_(1 + uses.client().rank());
    use.run();
  }
}

// A tensor that is made without a dtype has this one, whose eight bits do not count to 257.
void another_default_dtype(Uses& uses) {
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(at::kBFloat16));
  choose_unusual_modes();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    uses.run({.shape = {257, 3}, .dtype = dtype, .note = "the default dtype is bfloat16"});
  }
  uses.run({.shape = {257, 3}, .running = false, .mode = {.training = false}});
}

// A graph follows that must save nothing of what was made without.
void under_inference_mode(Uses& uses) {
  for (const bool training : {true, false}) {
    for (const bool inference : {true, false}) {
      uses.run({.weight = false,
                .bias = false,
                .mode = {.training = training},
                .graph = !inference,
                .inference = inference,
                .note = inference ? "under InferenceMode" : "after InferenceMode"});
    }
  }
}

// --- Ranks in several groups, and several forwards before a backward ---

const char* const kGroupsTest = "output_is_batch_norm_of_the_whole_batch";
const char* const kForwardsTest = "training_on_many_ranks_is_training_on_one";

// Each use has the next group. A rank may be in several, in each at another place.
void groups_in_turns(Uses& uses) {
  for (int step = 0; step < 9; ++step) {
    uses.run({.group = static_cast<GroupIndex>((step * 2 + step / 4 + 2) % 4)});
  }
}

// Several forwards go before the first backward, which begins with the last.
void forwards_first(Uses& uses, const std::vector<UseOptions>& options) {
  std::vector<Use*> all;
  for (const UseOptions& of_use : options) {
    all.push_back(uses.add(of_use));
    if (all.back() != nullptr) {
      all.back()->forward();
    }
  }
  for (auto use = all.rbegin(); use != all.rend(); ++use) {
    if (*use != nullptr) {
      (*use)->backward();
    }
  }
}

// A rank's first group is its own.
Scenario alone_first() {
  Scenario scenario =
      scenario_of("a group of one rank, then of two", 2, kGroupsTest, [](Uses& uses) {
        for (const GroupIndex group : {1, 2, 0, 1, 2}) {
          uses.run({.group = group});
        }
      });
  scenario.world.subgroups = {{0}, {1}};
  scenario.edge_cases.insert(kGroups);
  return scenario;
}

Scenario in_groups(const std::string& name, const std::string& charged_to,
                   const std::function<void(Uses&)>& run) {
  Scenario scenario = scenario_of(name, 4, charged_to, run);
  scenario.world.subgroups = {{0, 1, 2}, {3, 1}, {1, 0}};
  scenario.edge_cases.insert(kGroups);
  return scenario;
}

}  // namespace

std::vector<Scenario> shards() {
  const char* const test = "shards_may_be_unequal_or_empty";
  return joined({with_ranks({2}, "unequal shards", test, unequal_shards),
                 with_ranks({2}, "empty shards", test, empty_shards),
                 with_ranks({3, 4}, "unequal or empty shards", test,
                            [](Uses& uses) {
                              unequal_shards(uses);
                              empty_shards(uses);
                            }),
                 with_ranks({2}, "running statistics of each rank", test, statistics_of_each_rank),
                 with_ranks({2}, "an empty shard in half", test, narrow_empty_shards)});
}

std::vector<Scenario> modes() {
  const char* const test = "output_is_batch_norm_of_the_whole_batch";
  return joined({with_ranks({2}, "InferenceMode", test, under_inference_mode),
                 with_ranks({2}, "another default dtype and modes", test, another_default_dtype)});
}

std::vector<Scenario> tiny_deviations() {
  return with_ranks({2}, "a tiny deviation", "running_statistics_are_those_of_the_whole_batch",
                    tiny_deviation);
}

std::vector<Scenario> upstreams() {
  return with_ranks({2, 3}, "upstream gradients on some ranks", "one_collective_each_way",
                    some_without_gradient);
}

std::vector<Scenario> large_means() {
  return with_ranks({2, 1, 3}, "a large mean", "a_large_mean_costs_no_digits", large_mean);
}

std::vector<Scenario> large_products() {
  return with_ranks({2}, "large products", "a_large_mean_costs_no_digits", products);
}

std::vector<Scenario> low_precision() {
  return with_ranks({2, 3}, "half and bfloat16", "half_and_bfloat16_keep_float32_statistics",
                    low_precisions);
}

std::vector<Scenario> groups() {
  return {in_groups("four groups in turns", kGroupsTest, groups_in_turns), alone_first()};
}

std::vector<Scenario> interleaved() {
  return {scenario_of("forwards first", 2, kForwardsTest,
                      [](Uses& uses) {
                        std::vector<UseOptions> many(40);
                        many.push_back({.shape = {4, 3}});
                        forwards_first(uses, many);
                      }),
          in_groups("forwards of several groups first", kForwardsTest, [](Uses& uses) {
            forwards_first(
                uses, {{.group = 1}, {.shape = {4, 3}, .group = 2}, {.group = 1}, {.group = 0}});
          })};
}

// Inputs, gradients, parameters and statistics with unusual strides.

namespace {

struct NamedLayout {
  std::string name;
  MemoryLayout apply;
};

std::vector<NamedLayout> layouts_of(std::size_t dims) {
  std::vector<NamedLayout> all = {
      {"row-major", {}},
      {"transposed",
       [](const at::Tensor& v) { return v.transpose(0, 1).contiguous().transpose(0, 1); }},
      {"with the last two dimensions swapped",
       [](const at::Tensor& v) { return v.transpose(-2, -1).contiguous().transpose(-2, -1); }},
      {"a slice of a larger tensor",
       [](const at::Tensor& v) {
         return at::stack({at::full_like(v, 77), v}).select(0, 1);
       }},
      {"every other element of a larger tensor",
       [](const at::Tensor& v) {
         return at::stack({at::full_like(v, 77), v}, -1).select(-1, 1);
       }},
      {"channels cut out of a larger tensor", [](const at::Tensor& v) {
         const at::Tensor other = at::full_like(v, 77);
         return at::cat({other, v, other}, 1).narrow(1, v.size(1), v.size(1));
       }}};
  if (dims >= 4) {
    const auto format =
        dims == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
    all.push_back(
        {"channels_last", [format](const at::Tensor& v) { return v.contiguous(format); }});
    all.push_back({"channels_last and cut out of a larger tensor", [format](const at::Tensor& v) {
                     return at::cat({v, at::full_like(v, 77)}, -1)
                         .contiguous(format)
                         .narrow(-1, 0, v.size(-1));
                   }});
  }
  return all;
}

// Every layout of the input, of the upstream gradient, and of both.
void every_layout(Uses& uses, const SyncBatchNormOptions& mode) {
  int i = 0;
  for (const Shape& shape : std::vector<Shape>{{7, 4}, {5, 4, 3}, {4, 3, 4, 2}, {4, 4, 2, 3, 2}}) {
    const auto layouts = layouts_of(shape.size());
    for (const NamedLayout& layout : layouts) {
      for (int which = 1; which < 4; ++which) {
        uses.run({.shape = shape,
                  .dtype = i++ % 2 == 0 ? at::kFloat : at::kDouble,
                  .mode = mode,
                  .temporary = i % 4 == 0,
                  .of_input = which % 2 == 1 ? layout.apply : MemoryLayout(),
                  .of_upstream = which / 2 == 1 ? layout.apply : MemoryLayout(),
                  .note = std::string("the ") +
                          (which == 1   ? "input"
                           : which == 2 ? "upstream gradient"
                                        : "input and the upstream gradient") +
                          " being " + layout.name});
      }
      uses.run({.shape = shape,
                .mode = mode,
                .graph = false,
                .of_input = layout.apply,
                .note = "without a graph, the input being " + layout.name});
    }
    uses.run({.shape = shape,
              .mode = mode,
              .of_input = uses.client().rank() % 2 == 1 ? layouts[1].apply : MemoryLayout(),
              .note = "the input being transposed on every other rank"});
    uses.run({.shape = shape,
              .mode = mode,
              .upstream = Upstream::kExpanded,
              .note = "the upstream gradient being expanded, with a stride of 0"});
    uses.run({.shape = shape,
              .mode = mode,
              .upstream = Upstream::kSameRows,
              .note = "the upstream gradient being one row, for all samples"});
    uses.run({.shape = shape,
              .mode = mode,
              .upstream = Upstream::kOfChannels,
              .note = "the upstream gradient being one number for each channel"});
    for (const bool wanted : {false, true}) {
      uses.run({.shape = shape,
                .mode = mode,
                .wants = wanted ? kInput | kWeight | kBias : kWeight | kBias,
                .of_input = [](const at::Tensor& v) { return v.narrow(-1, 0, 1).expand_as(v); },
                .note = "the input being expanded, with a stride of 0"});
    }
  }
}

// Weight, bias and running statistics are columns, each of a table of its own, and must be used in
// place.
void columns_of_tables(Uses& uses, UseOptions options) {
  options.note = "weight, bias, statistics being columns of tables";
  Use& use = *uses.add(options);
  const auto column = [](const at::Tensor& values) {
    return at::stack({values.detach(), at::full_like(values, 77)}, 1).select(1, 0);
  };
  const auto& [weight, bias, mean, var] = use.tensors;
  use.replace_tensors({column(weight).set_requires_grad(true), column(bias).set_requires_grad(true),
                       column(mean), column(var)});
  use.run();
}

}  // namespace

std::vector<Scenario> layouts() {
  return with_ranks({2}, "every layout", "strides_do_not_matter", [](Uses& uses) {
    every_layout(uses, {});
    every_layout(uses, {.training = false});
    columns_of_tables(uses, {});
    columns_of_tables(uses, {.dtype = at::kDouble});
    columns_of_tables(uses, {.mode = {.training = false}, .graph = false});
  });
}

}  // namespace ddp::testing
