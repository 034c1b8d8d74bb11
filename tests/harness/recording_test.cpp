// The recorder: what was launched, with which data, in which order, and when it was waited for.
#include "ddp/referee/recording_backend.h"
#include "support/graded_ranks.h"

namespace ddp {
namespace {

using testing::Rank;

TEST(Recording, OperationsAreDescribedInOrder) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    const at::Tensor weight = at::ones({10, 2}).set_requires_grad(true);
    weight.mutable_grad() = at::ones({10, 2});
    rank.name({{"fc.weight", weight}});
    const at::Tensor other = at::ones({3}, at::kDouble);
    all_reduce(weight.grad(), rank.group(), ReduceOp::kAverage);
    broadcast(other, rank.group(), 1);
    const int peer = 1 - rank.rank();
    rank.rank() == 0 ? send(other, peer, rank.group(), 5) : recv(other, peer, rank.group(), 5);

    const auto operations = rank.recorder().operations();
    ASSERT_EQ(operations.size(), 3U);
    EXPECT_TRUE(operations[0].is_all_reduce());
    EXPECT_EQ(operations[0].reduce_op, c10d::ReduceOp::AVG);
    EXPECT_EQ(operations[0].bytes, 80);
    EXPECT_EQ(operations[0].dtype, at::kFloat);
    EXPECT_EQ(operations[0].name, "the gradient of fc.weight");
    EXPECT_EQ(operations[1].type, c10d::OpType::BROADCAST);
    EXPECT_EQ(operations[1].peer, 1);
    EXPECT_EQ(operations[1].bytes, 24);
    EXPECT_EQ(operations[1].name, "a tensor float64 [3]");
    EXPECT_TRUE(operations[2].is_message());
    EXPECT_EQ(operations[2].type, rank.rank() == 0 ? c10d::OpType::SEND : c10d::OpType::RECV);
    EXPECT_EQ(operations[2].peer, peer);
    EXPECT_EQ(operations[2].tag, 5);
    EXPECT_EQ(operations[2].bytes, 24);
  });
}

TEST(Recording, PositionsOrderLaunchesWaitsAndMarks) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    const at::Tensor a = at::ones({2});
    const at::Tensor b = at::ones({2});
    const at::Tensor c = at::ones({2});
    const WorkPtr first = all_reduce_async(a, rank.group());
    const WorkPtr second = all_reduce_async(b, rank.group());
    const std::int64_t between = rank.recorder().mark();
    second->wait();
    first->wait();
    second->wait();  // a second wait is no event
    const WorkPtr by_future = all_reduce_async(c, rank.group());
    by_future->getFuture()->wait();

    const auto operations = rank.recorder().operations();
    ASSERT_EQ(operations.size(), 3U);
    EXPECT_EQ(operations[0].launched, 0);
    EXPECT_EQ(operations[1].launched, 1);
    EXPECT_EQ(between, 2);
    EXPECT_EQ(operations[1].waited, 3);
    EXPECT_EQ(operations[0].waited, 4);
    EXPECT_EQ(operations[2].launched, 5);
    EXPECT_EQ(operations[2].waited, -1) << "a future's wait cannot be seen";
  });
}

TEST(Recording, ClearForgetsAndOldWaitsDoNotCount) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    const at::Tensor a = at::ones({2});
    const at::Tensor b = at::ones({2});
    const WorkPtr old = all_reduce_async(a, rank.group());
    rank.recorder().clear();
    const WorkPtr fresh = all_reduce_async(b, rank.group());
    old->wait();
    auto operations = rank.recorder().operations();
    ASSERT_EQ(operations.size(), 1U);
    EXPECT_EQ(operations[0].waited, -1);
    fresh->wait();
    EXPECT_GT(rank.recorder().operations()[0].waited, operations[0].launched);
  });
}

TEST(Recording, HandlesAreCountedAsLongAsSomebodyKeepsThem) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    const at::Tensor a = at::ones({2});
    const at::Tensor b = at::ones({2});
    std::vector<WorkPtr> kept;
    kept.push_back(all_reduce_async(a, rank.group()));
    kept.push_back(all_reduce_async(b, rank.group()));
    EXPECT_EQ(rank.recorder().live_handles(), 2);
    kept[0]->wait();
    kept[1]->getFuture()->wait();
    EXPECT_EQ(rank.recorder().live_handles(), 2) << "waited for, but kept";
    kept.pop_back();
    EXPECT_EQ(rank.recorder().live_handles(), 1);
    kept.clear();
    EXPECT_EQ(rank.recorder().live_handles(), 0);
    all_reduce(a, rank.group());
    EXPECT_EQ(rank.recorder().live_handles(), 0);
  });
}

}  // namespace
}  // namespace ddp
