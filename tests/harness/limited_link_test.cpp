// The real-time stand-in for a slow network: right values, never faster than the model says.
#include "ddp/backends/limited_link.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ddp/meters/statistics.h"
#include "ddp/ranks/launch.h"
#include "support/ranks.h"

namespace ddp {
namespace {

constexpr NetworkModel kSlow = {.alpha_ns = 1'000'000, .beta_ns_per_byte = 10};

ProcessGroupPtr make_limited_group(const RankContext& context) {
  const StorePtr store = store_for_next_backend(context);
  const BackendPtr gloo =
      make_gloo_backend(store, context.rank, context.world_size, std::chrono::milliseconds(10'000));
  return make_process_group(c10::make_intrusive<LimitedLink>(gloo, kSlow), store);
}

double model_seconds(c10d::OpType operation, std::int64_t bytes) {
  return 1e-9 * static_cast<double>(cost_ns(kSlow, operation, bytes, /*world_size=*/2));
}

TEST(LimitedLink, CollectivesTakeTheModelsTimeOneAfterTheOther) {
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const ProcessGroupPtr group = make_limited_group(context);
    std::vector<at::Tensor> tensors = {at::ones({1000}), at::ones({2000}) * context.rank};
    barrier(group);
    Stopwatch watch;
    std::vector<WorkPtr> works;
    works.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      works.push_back(all_reduce_async(tensor, group));
    }
    double expected = 0;
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i]->wait();
      expected += model_seconds(c10d::OpType::ALLREDUCE, tensors[i].nbytes());
      EXPECT_GE(watch.seconds(), expected);
      EXPECT_TRUE(works[i]->isCompleted());
    }
    EXPECT_TRUE(tensors[0].eq(2).all().item<bool>());
    EXPECT_TRUE(tensors[1].eq(1).all().item<bool>());
  });
}

TEST(LimitedLink, FuturesTakeAsLong) {
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const ProcessGroupPtr group = make_limited_group(context);
    at::Tensor tensor = at::ones({1000});
    barrier(group);
    Stopwatch watch;
    all_reduce_async(tensor, group)->getFuture()->wait();
    EXPECT_GE(watch.seconds(), model_seconds(c10d::OpType::ALLREDUCE, 4000));
    EXPECT_TRUE(tensor.eq(2).all().item<bool>());
  });
}

TEST(LimitedLink, MessagesCrossInBothDirectionsAtOnce) {
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const ProcessGroupPtr group = make_limited_group(context);
    const int peer = 1 - context.rank;
    at::Tensor sent = at::full({1000}, context.rank), received = at::empty({1000}, at::kLong);
    sent = sent.to(at::kLong);
    Stopwatch watch;
    const WorkPtr send_work = send_async(sent, peer, group);
    recv_async(received, peer, group)->wait();
    send_work->wait();
    EXPECT_GE(watch.seconds(), model_seconds(c10d::OpType::RECV, 8000));
    EXPECT_TRUE(received.eq(peer).all().item<bool>());
  });
}

}  // namespace
}  // namespace ddp
