// The all-reduces that stage 05's ring is compared with: results, and times as their headers say.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ddp/simulation/virtual_time.h"
#include "peers/all_reduces.h"
#include "support/ranks.h"

namespace ddp {
namespace {

using testing::Rank;

const std::vector<AllReduce> kGiven = {all_reduce_named("butterfly"),
                                       all_reduce_named("recursive doubling"),
                                       all_reduce_named("tree")};

void for_each_world(const std::function<void(Rank&, const AllReduce&)>& body) {
  for (const int world_size : {1, 2, 3, 4, 7, 8, 11}) {
    testing::run_ranks({.ranks = world_size}, [&](Rank& rank) {
      for (const AllReduce& given : kGiven) {
        SCOPED_TRACE(given.name);
        body(rank, given);
      }
    });
  }
}

at::Tensor random_of(int rank, at::IntArrayRef shape) {
  at::manual_seed(rank);
  return at::randn(shape);
}

TEST(GivenAllReduces, SumsAndAverages) {
  for_each_world([](Rank& rank, const AllReduce& given) {
    const std::int64_t ranks = rank.world_size();
    for (const std::int64_t elements : {0, 5, 100}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kLong, at::kBFloat16}) {
        const at::Tensor tensor = (at::arange(elements) % 7 + rank.rank()).to(dtype);
        const at::Tensor sum =
            (at::arange(elements) % 7 * ranks + ranks * (ranks - 1) / 2).to(dtype);
        const void* storage = tensor.data_ptr();
        given.run(tensor, rank.group(), ReduceOp::kSum);
        EXPECT_TRUE(at::equal(tensor, sum)) << tensor << "instead of" << sum;
        EXPECT_EQ(tensor.data_ptr(), storage);
      }
    }
    const at::Tensor tensor = at::full({3, 2}, rank.rank(), at::kDouble);
    given.run(tensor, rank.group(), ReduceOp::kAverage);
    EXPECT_TRUE(tensor.eq(static_cast<double>(ranks - 1) / 2).all().item<bool>()) << tensor;
  });
}

TEST(GivenAllReduces, AllRanksGetTheSameBits) {
  for_each_world([](Rank& rank, const AllReduce& given) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      const at::Tensor tensor = random_of(rank.rank(), {101});
      given.run(tensor, rank.group(), op);
      const at::Tensor all = all_gather(tensor.view(at::kInt), rank.group());
      EXPECT_TRUE(all.eq(all[0]).all().item<bool>());
    }
  });
}

TEST(GivenAllReduces, TensorsThatAreNotContiguousOrRequireAGradient) {
  for_each_world([](Rank& rank, const AllReduce& given) {
    const at::Tensor whole = at::zeros({4, 6});
    const at::Tensor part = whole.slice(/*dim=*/1, 0, 6, /*step=*/2).t();
    part.fill_(rank.rank() + 1);
    given.run(part, rank.group(), ReduceOp::kSum);
    const int sum = rank.world_size() * (rank.world_size() + 1) / 2;
    EXPECT_TRUE(part.eq(sum).all().item<bool>()) << part;
    EXPECT_EQ(whole.sum().item<int>(), 12 * sum);
    const at::Tensor parameter = at::ones({2}).set_requires_grad(true);
    given.run(parameter, rank.group(), ReduceOp::kSum);
    EXPECT_TRUE(parameter.is_leaf());
  });
}

TEST(GivenAllReduces, RefuseBadArgumentsBeforeAnyMessage) {
  const Evidence evidence = testing::run_ranks({.ranks = 3}, [](Rank& rank) {
    for (const AllReduce& given : kGiven) {
      const auto refused = [&](const at::Tensor& tensor, const ProcessGroupPtr& group,
                               ReduceOp op) {
        EXPECT_THROW(given.run(tensor, group, op), c10::Error);
      };
      refused({}, rank.group(), ReduceOp::kSum);
      refused(at::ones({2}), nullptr, ReduceOp::kSum);
      refused(at::ones({2}), rank.group(), ReduceOp::kMax);
      refused(at::ones({2}, at::kLong), rank.group(), ReduceOp::kAverage);
    }
  });
  EXPECT_TRUE(testing::launches_of(evidence, 1).empty());
}

// The number of terms alpha + (bytes sent) * beta in the time of an all-reduce.
std::int64_t messages_in_a_row(const std::string& name, int world_size) {
  const auto below = static_cast<int>(std::floor(std::log2(world_size)));
  const auto above = static_cast<int>(std::ceil(std::log2(world_size)));
  if (name == "recursive doubling") {
    return below == above ? below : below + 2;
  }
  if (name == "tree") {
    return 2 * above;
  }
  return 2 * (world_size - 1);
}

TEST(GivenAllReduces, TakeTheTimeOfTheirFormulas) {
  constexpr std::int64_t kChunkBytes = 40;
  for (int world_size = 1; world_size <= 17; ++world_size) {
    const Evidence evidence = testing::run_ranks({.ranks = world_size}, [](Rank& rank) {
      const at::Tensor tensor = at::ones({rank.world_size() * kChunkBytes / 4});
      int step = 0;
      for (const AllReduce& given : kGiven) {
        rank.client().go_to({.phase = Phase::kFinish, .step = step++});
        given.run(tensor, rank.group(), ReduceOp::kSum);
      }
    });
    const VirtualTime time(evidence, {.alpha_ns = 1'000, .beta_ns_per_byte = 2},
                           [](const Seen&, int) { return std::int64_t{0}; });
    int step = 0;
    for (const AllReduce& given : kGiven) {
      const bool chunks = std::string(given.name) == "butterfly";
      const std::int64_t bytes = chunks ? kChunkBytes : world_size * kChunkBytes;
      EXPECT_EQ(time.step_ns(step++),
                messages_in_a_row(given.name, world_size) * (1'000 + 2 * bytes))
          << given.name << ", " << world_size << " ranks";
    }
  }
}

}  // namespace
}  // namespace ddp
