#include <ATen/ATen.h>

#include "bodies.h"
#include "support/surroundings.h"

// Uses in training whose inputs are special in some way.

namespace ddp::testing {

namespace {

// How many samples each rank has.
std::vector<Shape> divisions(int ranks) {
  switch (ranks) {
    case 2:
      return {{7, 2}, {1, 8}, {0, 6}, {6, 0}, {1, 1}};
    case 3:
      return {{5, 1, 3}, {0, 4, 2}, {4, 0, 0}, {0, 0, 4}, {1, 0, 1}};
    default:
      return {{1, 2, 3, 4}, {0, 0, 5, 1}, {1, 1, 1, 1}};
  }
}

void unequal_shards(Uses& uses) {
  const int ranks = uses.client().world().ranks;
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const NormModule module = uses.module({.num_features = 3}, dtype);
    for (const Shape& rows : divisions(ranks)) {
      uses.run({.shape = {0, 3}, .rows = rows, .dtype = dtype});
      uses.run({.shape = {0, 2, 3, 2}, .rows = rows, .dtype = dtype, .temporary = true});
      uses.run({.shape = {0, 3, 5}, .rows = rows, .dtype = dtype}, module);
      uses.run({.shape = {0, 2, 1, 3, 2}, .rows = rows, .dtype = dtype});
    }
  }
  Shape rows(ranks, 24);
  rows.front() = 0;
  uses.run({.shape = {24, 32}, .rows = rows, .dtype = at::kFloat, .mean = 1e4});
  rows.back() = 3000;
  uses.run({.shape = {24, 3, 2}, .rows = rows, .dtype = at::kFloat, .note = "a large shard"});
  Shape one(ranks, 0);
  one.back() = 1;
  uses.run({.shape = {0, 3, 2, 2}, .rows = one, .note = "one sample on all ranks together"});
  uses.run({.shape = {0, 3, 2}, .rows = one, .dtype = at::kFloat, .graph = false});
  uses.run({.shape = {0, 3, 2}, .rows = one, .wants_input = false});
}

void some_without_gradient(Uses& uses) {
  for (const Upstream upstream : {Upstream::kFirstHalf, Upstream::kUndefinedOnOdd}) {
    for (const Shape& shape : shapes()) {
      uses.run({.shape = shape, .upstream = upstream});
    }
    uses.run({.shape = {32, 128}, .dtype = at::kFloat, .upstream = upstream});
    const NormModule module = uses.module({.num_features = 3}, at::kDouble);
    uses.run({.upstream = upstream}, module);
  }
}

void large_mean(Uses& uses) {
  for (const double mean : {1e4, -1e4}) {
    uses.run({.shape = {24, 32}, .dtype = at::kFloat, .mean = mean});
    uses.run({.shape = {12, 9, 2, 3}, .dtype = at::kFloat, .mean = mean});
    uses.run({.shape = {24, 600}, .dtype = at::kFloat, .mean = mean});
    uses.run({.shape = {5, 32}, .dtype = at::kFloat, .mean = mean});
  }
  uses.run({.shape = {24, 8}, .mean = 100});
  for (const bool running : {true, false}) {
    uses.run({.shape = {64, 5},
              .dtype = at::kFloat,
              .running = running,
              .mode = {.training = false},
              .mean = 1e4});
  }
}

// Thousands of products of which only a small sum is left.
void products(Uses& uses) {
  uses.run({.shape = {16384, 6}, .dtype = at::kFloat, .mean = 1e4, .upstream = Upstream::kBlocks});
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
    uses.run({.shape = {0, 3}, .dtype = dtype}, module);
  }
}

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
                  .dtype = ++i % 2 == 0 ? at::kFloat : at::kDouble,
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
                .dtype = at::kFloat,
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
    uses.run({.shape = shape,
              .mode = mode,
              .wants_input = false,
              .of_input = [](const at::Tensor& v) { return v.narrow(-1, 0, 1).expand_as(v); },
              .note = "the input being expanded, with a stride of 0"});
  }
}

// As after a checkpoint that one rank has loaded: batch statistics have nothing to do with it.
void statistics_of_each_rank(Uses& uses) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    Use& use = *uses.add({.dtype = dtype, .note = "running statistics differing between ranks"});
    use.tensors.running_mean.add_(2 + 5 * uses.client().rank());
    use.tensors.running_var.mul_(1 + uses.client().rank());
    use.run();
  }
}

// A tensor that is made without a dtype has this one, whose eight bits do not count to 257.
void another_default_dtype(Uses& uses) {
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(at::kBFloat16));
  choose_rare_modes();
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
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

// Weight, bias and running statistics are columns of a table, and must be used in place.
void columns_of_a_table(Uses& uses, UseOptions options) {
  options.note = "weight, bias, statistics being columns of a table";
  Use& use = *uses.add(options);
  auto& [weight, bias, mean, var] = use.tensors;
  const at::Tensor table = at::stack({weight.detach(), bias.detach(), mean, var}, 1);
  use.replace_tensors({table.select(1, 0).set_requires_grad(true),
                       table.select(1, 1).set_requires_grad(true), table.select(1, 2),
                       table.select(1, 3)});
  use.run();
}

}  // namespace

const std::vector<Body>& shards() {
  const char* const test = "shards_may_be_unequal_or_empty";
  static const std::vector<Body> bodies =
      joined({with_ranks({2, 3, 4}, "unequal shards", test, unequal_shards),
              with_ranks({2}, "running statistics of each rank", test, statistics_of_each_rank)});
  return bodies;
}

const std::vector<Body>& modes() {
  const char* const test = "output_is_batch_norm_of_the_whole_batch";
  static const std::vector<Body> bodies =
      joined({with_ranks({2}, "InferenceMode", test, under_inference_mode),
              with_ranks({2}, "another default dtype and modes", test, another_default_dtype)});
  return bodies;
}

const std::vector<Body>& upstreams() {
  static const std::vector<Body> bodies = with_ranks(
      {2, 3}, "upstream gradients on some ranks", "one_collective_each_way", some_without_gradient);
  return bodies;
}

const std::vector<Body>& large_means() {
  static const std::vector<Body> bodies =
      with_ranks({2, 1, 3}, "a large mean", "a_large_mean_costs_no_digits", large_mean);
  return bodies;
}

const std::vector<Body>& large_products() {
  static const std::vector<Body> bodies =
      with_ranks({2}, "large products", "a_large_mean_costs_no_digits", products);
  return bodies;
}

const std::vector<Body>& low_precision() {
  static const std::vector<Body> bodies = with_ranks(
      {2, 3}, "half and bfloat16", "half_and_bfloat16_keep_float32_statistics", low_precisions);
  return bodies;
}

const std::vector<Body>& layouts() {
  static const std::vector<Body> bodies =
      with_ranks({2}, "every layout", "strides_do_not_matter", [](Uses& uses) {
        every_layout(uses, {});
        every_layout(uses, {.training = false});
        columns_of_a_table(uses, {.dtype = at::kDouble});
        columns_of_a_table(uses, {.dtype = at::kFloat});
        columns_of_a_table(uses,
                           {.dtype = at::kFloat, .mode = {.training = false}, .graph = false});
      });
  return bodies;
}

}  // namespace ddp::testing
