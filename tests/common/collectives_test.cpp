// The thin functions over c10d: errors in their arguments, and shapes.
#include "ddp/collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/checks.h"
#include "common/ranks.h"

namespace ddp {
namespace {

using testing::expect_error;
using testing::Rank;

TEST(Collectives, ReduceOps) {
  testing::run_worlds({1, 2, 3, 4}, [](Rank& rank) {
    const auto reduced = [&](ReduceOp op) {
      const at::Tensor tensor = at::full({}, rank.rank() + 1.0, at::kDouble);
      all_reduce(tensor, rank.group(), op);
      return tensor.item<double>();
    };
    const int size = rank.world_size();
    EXPECT_EQ(reduced(ReduceOp::kSum), size * (size + 1) / 2);
    EXPECT_EQ(reduced(ReduceOp::kAverage), (size + 1) / 2.0);
    EXPECT_EQ(reduced(ReduceOp::kMin), 1);
    EXPECT_EQ(reduced(ReduceOp::kMax), size);
  });
}

TEST(Collectives, AllGatherStacksAlongANewDimension) {
  testing::run_worlds({1, 2, 3, 4}, [](Rank& rank) {
    const at::Tensor transposed = (at::arange(6).view({2, 3}) + 10 * rank.rank()).t();
    const at::Tensor gathered = all_gather(transposed, rank.group());
    ASSERT_EQ(gathered.sizes(), at::IntArrayRef({rank.world_size(), 3, 2}));
    for (int from = 0; from < rank.world_size(); ++from) {
      EXPECT_TRUE(at::equal(gathered[from], (at::arange(6).view({2, 3}) + 10 * from).t()));
    }
  });
}

TEST(Collectives, RanksOutsideTheGroupAreRefused) {
  const Evidence evidence = testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    const at::Tensor tensor = at::ones({2});
    const ProcessGroupPtr& group = rank.group();
    for (const int outside : {-1, 2, 99}) {
      const std::string there_is_no = ": there is no rank " + std::to_string(outside);
      expect_error("send" + there_is_no, [&] { send(tensor, outside, group); });
      expect_error("recv" + there_is_no, [&] { recv(tensor, outside, group); });
      expect_error("broadcast" + there_is_no, [&] { broadcast(tensor, group, outside); });
      std::vector<at::Tensor> tensors{tensor};
      expect_error("send" + there_is_no, [&] { group->send(tensors, outside, 0)->wait(); });
      expect_error("reduce" + there_is_no,
                   [&] { group->reduce(tensors, {.rootRank = outside})->wait(); });
    }
    expect_error("with itself", [&] { send(tensor, rank.rank(), group); });
  });
  EXPECT_TRUE(testing::launches_of(evidence, 0).empty());
}

TEST(Collectives, UndefinedTensorsAreRefused) {
  const Evidence evidence = testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    const at::Tensor nothing;
    const int other = 1 - rank.rank();
    expect_error("undefined", [&] { all_reduce(nothing, rank.group()); });
    expect_error("undefined", [&] { broadcast(nothing, rank.group()); });
    expect_error("undefined", [&] { all_gather(nothing, rank.group()); });
    expect_error("undefined", [&] { send(nothing, other, rank.group()); });
    expect_error("undefined", [&] { recv(nothing, other, rank.group()); });
  });
  EXPECT_TRUE(testing::launches_of(evidence, 0).empty());
}

}  // namespace
}  // namespace ddp
