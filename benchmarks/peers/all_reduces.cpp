#include "peers/all_reduces.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "peers/butterfly.h"
#include "peers/logarithmic_all_reduces.h"

namespace ddp {
namespace {

using Group = ProcessGroupPtr;

// The stage's functions are called, not pointed to: their addresses are unknown until the library
// is loaded.
constexpr AllReduce kAll[] = {
    {.name = kRing,
     .optional = false,
     .run = [](const at::Tensor& t, const Group& g, ReduceOp op) { ring_all_reduce(t, g, op); }},
    {.name = "pipelined ring",
     .optional = true,
     .run = [](const at::Tensor& t, const Group& g,
               ReduceOp op) { pipelined_ring_all_reduce(t, g, {.op = op}); }},
    {.name = "butterfly",
     .optional = false,
     .run = [](const at::Tensor& t, const Group& g,
               ReduceOp op) { butterfly_all_reduce(t, g, op); }},
    {.name = "recursive doubling",
     .optional = false,
     .run = [](const at::Tensor& t, const Group& g,
               ReduceOp op) { recursive_doubling_all_reduce(t, g, op); }},
    {.name = "tree",
     .optional = false,
     .run = [](const at::Tensor& t, const Group& g, ReduceOp op) { tree_all_reduce(t, g, op); }},
    {.name = "all_reduce",
     .optional = false,
     .run = [](const at::Tensor& t, const Group& g, ReduceOp op) { all_reduce(t, g, op); }},
};

void expect_right_sum(const AllReduce& one, const at::Device& device, const Group& group) {
  const int ranks = group->getSize();
  const std::int64_t elements = 3 * ranks + 1;
  const at::Tensor tensor = at::arange(elements, at::device(device).dtype(at::kFloat));
  const at::Tensor sum = tensor * ranks;
  one.run(tensor, group, ReduceOp::kSum);
  TORCH_CHECK(at::equal(tensor, sum), "the sum of ", one.name, " over ", ranks,
              " ranks is wrong, so there is no point in measuring it; `make test STAGE=05` says "
              "more");
}

}  // namespace

const AllReduce& all_reduce_named(const std::string& name) {
  const auto found =
      std::ranges::find_if(kAll, [&](const AllReduce& one) { return one.name == name; });
  TORCH_CHECK_VALUE(found != std::end(kAll), "there is no all-reduce \"", name, "\"");
  return *found;
}

std::vector<AllReduce> usable_all_reduces(const std::vector<std::string>& names,
                                          const at::Device& device, const ProcessGroupPtr& group) {
  std::vector<AllReduce> usable;
  for (const std::string& name : names) {
    const AllReduce& one = all_reduce_named(name);
    try {
      expect_right_sum(one, device, group);
      usable.push_back(one);
    } catch (const c10::NotImplementedError& error) {
      if (!one.optional) {
        throw;
      }
      if (group->getRank() == 0) {
        std::fprintf(stderr, "%s is left out: %s\n", one.name, error.msg().c_str());
      }
    }
  }
  return usable;
}

}  // namespace ddp
