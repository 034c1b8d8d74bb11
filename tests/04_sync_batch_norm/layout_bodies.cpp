#include <ATen/ATen.h>

#include "bodies.h"

// Inputs, gradients, parameters and statistics with unusual strides.

namespace ddp::testing {

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

std::vector<Body> layouts() {
  return with_ranks({2}, "every layout", "strides_do_not_matter", [](Uses& uses) {
    every_layout(uses, {});
    every_layout(uses, {.training = false});
    columns_of_tables(uses, {});
    columns_of_tables(uses, {.dtype = at::kDouble});
    columns_of_tables(uses, {.mode = {.training = false}, .graph = false});
  });
}

}  // namespace ddp::testing
