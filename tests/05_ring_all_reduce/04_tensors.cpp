#include <ATen/ATen.h>

#include <functional>

#include "ring_data.h"
#include "support/compare.h"
#include "support/grading.h"

// The result is in the caller's memory, and the tensor keeps its other properties.

namespace ddp::testing {

namespace {

using RingFunction = std::function<void(const at::Tensor&, const ProcessGroupPtr&)>;

struct NamedFunction {
  const char* name;
  RingFunction call;
};

// Lambdas that call the functions, not their addresses: the stage's library is loaded later.
const std::vector<NamedFunction>& ring_functions() {
  static const std::vector<NamedFunction> functions = {
      {"ring_reduce_scatter()",
       [](const at::Tensor& tensor, const ProcessGroupPtr& group) {
         ring_reduce_scatter(tensor, group);
       }},
      {"ring_all_gather()", [](const at::Tensor& tensor,
                               const ProcessGroupPtr& group) { ring_all_gather(tensor, group); }},
      {"ring_all_reduce()", [](const at::Tensor& tensor, const ProcessGroupPtr& group) {
         ring_all_reduce(tensor, group, ReduceOp::kAverage);
       }}};
  return functions;
}

// The tensor is not replaced by another one, and keeps everything except its elements.
void expect_same_tensor(Rank& rank, const NamedFunction& function, const at::Tensor& tensor,
                        const std::string& what) {
  const std::string said = std::string(function.name) + " of " + what;
  const void* const data = tensor.data_ptr();
  const bool required = tensor.requires_grad();
  const auto sizes = tensor.sizes().vec();
  const auto strides = tensor.strides().vec();
  const void* const grad_fn = tensor.grad_fn().get();
  function.call(tensor, rank.group());
  EXPECT_EQ(tensor.data_ptr(), data)
      << said << ": the result should be in the tensor's own storage, where views of it and "
      << "optimizers look for it; it is in another one";
  EXPECT_TRUE(tensor.sizes() == sizes && tensor.strides() == strides)
      << said << ": the tensor has got another shape, or other strides: " << tensor.sizes() << " "
      << tensor.strides();
  EXPECT_TRUE(tensor.requires_grad() == required && tensor.grad_fn().get() == grad_fn &&
              !tensor.mutable_grad().defined())
      << said << ": autograd should not notice anything: work on tensor.detach(), or under "
      << "at::NoGradGuard";
  EXPECT_TRUE(at::GradMode::is_enabled())
      << said << " has switched autograd off for the caller, too";
}

// A view of the tensor sees the result.
void expect_views_to_see(Rank& rank) {
  const RingCase one{.elements = 35};
  const at::Tensor matrix = whole_values(one, rank.rank(), rank.world_size()).view({5, 7});
  const at::Tensor view = matrix.view({-1});
  ring_all_reduce(matrix, rank.group());
  EXPECT_TRUE(is_close({describe(one) + ", seen by a view from before,", rank.world_size()}, view,
                       combined_whole_values(one, rank.world_size()), tolerance_of(one)));
}

void expect_own_storage(Rank& rank) {
  const auto options = at::TensorOptions(at::kFloat).device(settings().device);
  expect_views_to_see(rank);
  for (const NamedFunction& function : ring_functions()) {
    expect_same_tensor(rank, function, at::ones({5, 7}, options), "a matrix");
    expect_same_tensor(rank, function, at::ones({}, options), "a scalar");
    expect_same_tensor(rank, function, at::ones({0, 4}, options), "an empty tensor");
    const at::Tensor parameter = at::ones({6, 4}, options).set_requires_grad(true);
    expect_same_tensor(rank, function, parameter, "a parameter that requires a gradient");
    expect_same_tensor(rank, function, parameter * 2, "a result that requires a gradient");
    expect_same_tensor(rank, function, at::ones({4, 6}, options).t(), "a transposed matrix");
  }
}

const GradedTest kStorage{
    {.name = "the_result_is_in_the_callers_storage",
     .points = 1,
     .hint = "Write into the memory that the tensor has: flat views, narrow(), in-place operators. "
             "A parameter that requires a gradient takes these only where autograd is off."},
    [] {
      run_worlds({1, 2, 3}, expect_own_storage);
    }};

// A view of a larger tensor, with gaps between its elements or in a different order.
struct Layout {
  const char* name;
  std::vector<std::int64_t> whole;
  std::function<at::Tensor(const at::Tensor&)> view;
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"a transposed matrix", {9, 7}, [](const at::Tensor& t) { return t.t(); }},
      {"every second column", {5, 12}, [](const at::Tensor& t) { return t.slice(1, 0, 12, 2); }},
      {"some columns", {6, 11}, [](const at::Tensor& t) { return t.narrow(1, 3, 5); }},
      {"one column", {13, 3}, [](const at::Tensor& t) { return t.select(1, 2); }},
      {"a permuted block",
       {4, 5, 6},
       [](const at::Tensor& t) {
         return t.permute({2, 0, 1}).narrow(0, 1, 3);
       }},
      {"a channels-last image",
       {2, 4, 5, 3},
       [](const at::Tensor& t) {
         return t.permute({0, 3, 1, 2});
       }},
      {"an empty selection", {4, 6}, [](const at::Tensor& t) { return t.slice(1, 2, 2, 2); }},
  };
  return all;
}

void expect_reduced_layout(Rank& rank, const Layout& layout, const RingCase& kind) {
  constexpr double kOutside = 77;
  const int world_size = rank.world_size();
  const at::Tensor whole =
      at::full(layout.whole, kOutside, at::TensorOptions(kind.dtype).device(settings().device));
  const at::Tensor view = layout.view(whole);
  const RingCase one{.elements = view.numel(), .dtype = kind.dtype, .op = kind.op};
  const at::Tensor values = whole_values(one, rank.rank(), world_size).view(view.sizes());
  view.copy_(values);
  ring_all_reduce(view, rank.group(), one.op);
  const at::Tensor expected = combined_whole_values(one, world_size).view(view.sizes());
  EXPECT_TRUE(is_close({describe(one) + " (" + layout.name + ")", world_size, values}, view,
                       expected, tolerance_of(one)));
  view.fill_(kOutside);
  EXPECT_TRUE(whole.eq(kOutside).all().item<bool>())
      << describe(one) << " (" << layout.name << "): elements outside of the view were written";
}

const GradedTest kLayouts{
    {.name = "tensors_need_not_be_contiguous",
     .points = 1,
     .hint = "tensor.contiguous() is the tensor itself or a copy. What must be done with a copy in "
             "the end?"},
    [] {
      run_worlds({1, 2, 3, 5}, [](Rank& rank) {
        for (const Layout& layout : layouts()) {
          expect_reduced_layout(rank, layout, {.dtype = at::kFloat});
          expect_reduced_layout(rank, layout, {.dtype = at::kDouble, .op = ReduceOp::kAverage});
          expect_reduced_layout(rank, layout, {.dtype = at::kLong});
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
