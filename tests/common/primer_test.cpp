// The code of docs/primer.md, which quotes it word for word (tests/tools/test_repository.py compares).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/checks.h"
#include "common/ranks.h"
#include "ddp/collectives.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

void tensors_and_views() {
  at::Tensor table = at::arange(6, at::kFloat).view({2, 3});  // 0 1 2 / 3 4 5
  at::Tensor same = table;                                    // a second handle, no copy
  at::Tensor row = table.narrow(0, 1, 1);  // from row 1 on, 1 row: a view of the same memory
  row.mul_(10);                            // an underscore: in place
  TORCH_CHECK(table[1][2].item<float>() == 50 && same.is_same(table) && !row.is_same(table));

  at::Tensor columns = table.t();  // the same memory, other strides
  TORCH_CHECK(columns.sizes() == at::IntArrayRef({3, 2}) && !columns.is_contiguous());
  at::Tensor flat = columns.contiguous().view({-1});  // 0 30 1 40 2 50: a copy, in row-major order
  flat.zero_();
  TORCH_CHECK(table[1][2].item<float>() == 50);  // so nothing was written into the table
}

void dtypes_and_devices() {
  at::Tensor half = at::ones({2, 3}, at::kHalf);
  TORCH_CHECK(half.numel() == 6 && half.element_size() == 2 && half.nbytes() == 12);
  at::Tensor like = at::empty({6}, half.options());  // its dtype and its device, and no values yet
  TORCH_CHECK(like.scalar_type() == at::kHalf && like.device() == half.device());
  TORCH_CHECK(half.to(at::kHalf).is_same(half));  // nothing to convert: the tensor itself
  at::Tensor wide = half.to(at::kFloat);          // a copy in float32
  TORCH_CHECK(wide.nbytes() == 24);
}

void gradients() {
  at::Tensor weight = at::ones({2}).set_requires_grad(true);  // a leaf of the graph
  TORCH_CHECK(!weight.grad().defined());
  (weight * 3).sum().backward();
  (weight * 4).sum().backward();  // gradients add up until somebody resets them
  TORCH_CHECK(weight.grad().eq(7).all().item<bool>());
  {
    at::NoGradGuard no_grad;           // until the end of this scope nothing is recorded
    weight.sub_(weight.grad() * 0.1);  // without the guard: an error, for a leaf changes in place
  }
  weight.detach().mul_(2);               // shares the memory, and autograd does not know it
  weight.mutable_grad() = at::Tensor();  // "none": an undefined tensor
}

void hooks() {
  at::Tensor first = at::ones({2}).set_requires_grad(true);
  at::Tensor second = at::ones({2}).set_requires_grad(true);
  std::vector<double> ready;
  {
    const GradientHook hook = on_gradient_ready(second, [&ready](const at::Tensor& parameter) {
      ready.push_back(parameter.grad()[0].item<double>());  // inside backward, on its thread
    });
    (first * 2 * second).sum().backward();
  }                                       // the handle ends, and with it the registration
  (first * 2 * second).sum().backward();  // calls nothing
  TORCH_CHECK(ready == std::vector<double>{2});
}

void collectives(const ProcessGroupPtr& group) {  // on every rank, in the same order
  const int rank = group->getRank(), size = group->getSize();
  at::Tensor sum = at::full({4}, rank + 1.0);
  all_reduce(sum, group);  // returns when the sum is there
  TORCH_CHECK(sum[0].item<int>() == size * (size + 1) / 2);

  at::Tensor own = at::full({4}, 1.0);
  WorkPtr work = all_reduce_async(own, group);  // returns at once; own is in flight
  work->wait();                                 // now own has the result
  TORCH_CHECK(own[0].item<double>() == size);

  std::vector<at::Tensor> list = {own};  // c10d itself: a vector and options for everything
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  c10::intrusive_ptr<c10d::Work> raw = group->allreduce(list, options);
  raw->getFuture()->waitAndThrow();  // like wait(), by a future, which also takes callbacks
}

void errors() {
  std::string said;
  try {
    TORCH_CHECK(1 + 1 == 3, "parameter ", 7, " is sparse");
  } catch (const c10::Error& error) {
    said = error.what_without_backtrace();
  }
  TORCH_CHECK(said == "parameter 7 is sparse", "it says: ", said);
}

CHILD_TEST(Primer, Runs) {
  tensors_and_views();
  dtypes_and_devices();
  gradients();
  hooks();
  errors();
}

TEST(Primer, RunsOnEachRank) {
  testing::run_ranks({.ranks = 3}, [](testing::Rank& rank) { collectives(rank.group()); });
}

}  // namespace
}  // namespace ddp
