#include <ATen/ATen.h>

#include <functional>

#include "norm_case.h"
#include "support/compare.h"
#include "support/grading.h"

// The memory layout of tensors is up to the caller.

namespace ddp::testing {

namespace {

// A memory layout, applied to given values.
struct Layout {
  std::string name;
  std::function<at::Tensor(const at::Tensor& values)> apply;
};

std::vector<Layout> layouts_of(std::int64_t dims) {
  std::vector<Layout> layouts = {
      {"contiguous", [](const at::Tensor& values) { return values.contiguous(); }},
      {"transposed",
       [](const at::Tensor& values) {
         return values.transpose(0, 1).contiguous().transpose(0, 1);
       }},
      {"the last two dimensions swapped",
       [](const at::Tensor& values) {
         return values.transpose(-2, -1).contiguous().transpose(-2, -1);
       }},
      {"every other element of a larger tensor",
       [](const at::Tensor& values) {
         std::vector<std::int64_t> shape = values.sizes().vec();
         shape.push_back(2);
         const at::Tensor larger = at::full(shape, 77, values.options());
         larger.select(-1, 1).copy_(values);
         return larger.select(-1, 1);
       }},
      {"channels cut out of a larger tensor", [](const at::Tensor& values) {
         const at::Tensor larger = at::full_like(at::cat({values, values, values}, 1), 77);
         at::Tensor part = larger.narrow(1, 1, values.size(1));
         part.copy_(values);
         return part;
       }}};
  if (dims == 4 || dims == 5) {
    const auto format =
        dims == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
    layouts.push_back({"channels_last",
                       [format](const at::Tensor& values) { return values.contiguous(format); }});
  }
  return layouts;
}

// The input is a leaf that has the layout itself.
void expect_all(const Rank& rank, const NormCase& norm, const Layout& of_input,
                const Layout& of_upstream) {
  const std::string note =
      ", the input being " + of_input.name + ", the upstream gradient " + of_upstream.name + ",";
  for (const at::Tensor& parameter : {norm.tensors.weight, norm.tensors.bias}) {
    parameter.mutable_grad() = at::Tensor();
  }
  const at::Tensor input = of_input.apply(norm.shard(norm.input())).set_requires_grad(true);
  const at::Tensor upstream = of_upstream.apply(norm.shard(norm.upstream()));
  const at::Tensor output =
      sync_batch_norm(input, affine_tensors(norm.tensors.weight, norm.tensors.bias), rank.group());
  norm.expect_output(output.detach(), note);
  output.backward(upstream);
  norm.expect_input_gradient(input.grad(), note);
  norm.expect_parameter_gradients(note);
  EXPECT_TRUE(is_bitwise_equal({"the input after forward and backward" + note}, input.detach(),
                               norm.shard(norm.input())));
  EXPECT_TRUE(is_bitwise_equal({"the upstream gradient after backward" + note}, upstream,
                               norm.shard(norm.upstream())));
}

void expect_all_layouts(const Rank& rank, const std::vector<std::int64_t>& shape,
                        at::ScalarType dtype) {
  const NormCase norm(rank, {.shape = shape, .dtype = dtype});
  const auto layouts = layouts_of(static_cast<std::int64_t>(shape.size()));
  for (const Layout& layout : layouts) {
    expect_all(rank, norm, layout, layouts.front());
    expect_all(rank, norm, layouts.front(), layout);
    expect_all(rank, norm, layout, layout);
  }
}

at::Tensor first_along_the_last(const at::Tensor& values) {
  return values.narrow(-1, 0, 1).expand_as(values);
}

// Values that share one place in memory, as the gradient of a sum does.
void expect_expanded(const Rank& rank, const std::vector<std::int64_t>& shape) {
  NormCase norm(rank, {.shape = shape, .dtype = at::kDouble});
  for (const bool by_sum : {true, false}) {
    norm.tensors.weight.mutable_grad() = at::Tensor();
    norm.tensors.bias.mutable_grad() = at::Tensor();
    norm.set_upstream(by_sum ? at::ones_like(norm.upstream())
                             : first_along_the_last(norm.upstream()));
    const at::Tensor input = norm.input_shard();
    const at::Tensor output = sync_batch_norm(input, norm.tensors, rank.group());
    by_sum ? output.sum().backward() : output.backward(norm.shard(norm.upstream()));
    const std::string note = ", the upstream gradient being expanded, with a stride of 0,";
    norm.expect_input_gradient(input.grad(), note);
    norm.expect_parameter_gradients(note);
  }
  const at::Tensor repeated = first_along_the_last(norm.shard(norm.input()));
  EXPECT_TRUE(is_close(
      {"the output for an expanded input", rank.world_size()},
      sync_batch_norm(repeated, {}, rank.group()),
      sync_batch_norm(repeated.clone(at::MemoryFormat::Contiguous), {}, rank.group()), 1e-10));
}

// Weight, bias and running statistics that are columns of a table, and must be used in place.
void expect_strided_tensors(const Rank& rank) {
  NormCase norm(rank, {.shape = {14, 5, 2}, .dtype = at::kDouble});
  const at::Tensor table = at::stack({norm.tensors.weight.detach(), norm.tensors.bias.detach(),
                                      norm.tensors.running_mean, norm.tensors.running_var},
                                     1);
  const at::Tensor mean_before = norm.tensors.running_mean.clone();
  const at::Tensor var_before = norm.tensors.running_var.clone();
  norm.tensors = {table.select(1, 0), table.select(1, 1), table.select(1, 2), table.select(1, 3)};
  norm.expect_output(sync_batch_norm(norm.input_shard(), norm.tensors, rank.group()).detach(),
                     " with the columns of a table as weight and bias");
  norm.expect_running(mean_before, var_before, 0.1, " that is a column of a table");
}

const GradedTest kLayouts{
    {.name = "strides_do_not_matter",
     .points = 1,
     .hint = "Go by shape and strides, or make contiguous what you read by pointer: the input, and "
             "the gradient from upstream, which after a sum has stride 0 everywhere."},
    [] {
      run_worlds({1, 2, 3}, [](Rank& rank) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          expect_all_layouts(rank, {11, 4}, dtype);
          expect_all_layouts(rank, {7, 5, 3}, dtype);
          expect_all_layouts(rank, {6, 3, 4, 2}, dtype);
          expect_all_layouts(rank, {6, 4, 2, 3, 2}, dtype);
        }
        expect_expanded(rank, {12, 3});
        expect_expanded(rank, {8, 3, 4, 2});
        expect_strided_tensors(rank);
      });
    }};

}  // namespace

}  // namespace ddp::testing
