// What backends share: queues of work, names of tensors, and the real-time stand-in for a slow network.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "common/checks.h"
#include "common/ranks.h"
#include "ddp/backends/limited_link.h"
#include "ddp/backends/tensor_names.h"
#include "ddp/backends/worker_queue.h"
#include "ddp/launching/launch.h"
#include "ddp/meters/statistics.h"

namespace ddp {
namespace {

CHILD_TEST(WorkerQueue, DoesJobsInOrderAndAllOfThem) {
  std::vector<int> done;
  {
    WorkerQueue queue;
    for (int i = 0; i < 1'000; ++i) {
      queue.submit([&done, i] { done.push_back(i); });
    }
  }
  ASSERT_EQ(done.size(), 1'000U);
  for (int i = 0; i < 1'000; ++i) {
    EXPECT_EQ(done[i], i);
  }
}

CHILD_TEST(WorkerQueue, BlockedQueueDelaysNoOther) {
  std::promise<void> open;
  WorkerQueue blocked, other;
  blocked.submit([future = open.get_future().share()] { future.wait(); });
  other.submit([&] { open.set_value(); });
}

CHILD_TEST(WorkerQueue, ReleasesWhatAJobHeldBeforeTheNext) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  std::promise<bool> gone;
  WorkerQueue queue;
  queue.submit([held = std::move(held)] {});
  queue.submit([&] { gone.set_value(watched.expired()); });
  EXPECT_TRUE(gone.get_future().get());
}

CHILD_TEST(WorkerQueue, DrainWaitsForWhatWasSubmitted) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  bool done = false;
  WorkerQueue queue;
  queue.submit([&done, held = std::move(held)] { done = true; });
  queue.drain();
  EXPECT_TRUE(done);
  EXPECT_TRUE(watched.expired());
}

CHILD_TEST(TensorNames, GoByMemory) {
  const at::Tensor weight = at::ones({4, 4}).set_requires_grad(true);
  const at::Tensor bias = at::ones({4});
  TensorNames names;
  names.add({{"fc.weight", weight}});
  names.add({{"fc.bias", bias}});
  EXPECT_EQ(names.of(weight), "fc.weight");
  EXPECT_EQ(names.of(bias), "fc.bias");
  EXPECT_EQ(names.of(weight.detach().t()[2]), "fc.weight");
  EXPECT_EQ(names.of(at::ones({2, 3}, at::kLong)), "a tensor int64 [2, 3]");

  // A gradient may come, and be replaced, at any time.
  const at::Tensor gradient = at::ones({4, 4});
  EXPECT_EQ(names.of(gradient), "a tensor float32 [4, 4]");
  weight.mutable_grad() = gradient;
  EXPECT_EQ(names.of(gradient), "the gradient of fc.weight");
  EXPECT_EQ(names.of(gradient.flatten().narrow(0, 3, 2)), "the gradient of fc.weight");
  EXPECT_EQ(names.of(at::empty({0})), "a tensor float32 [0]");
}

CHILD_TEST(TensorNames, OfABucketThatGradientsAreViewsOf) {
  const at::Tensor bucket = at::zeros({10});
  TensorNames names;
  const auto add = [&](const char* name, std::int64_t begin, std::int64_t length) {
    at::Tensor parameter = at::ones({length}).set_requires_grad(true);
    parameter.mutable_grad() = bucket.narrow(0, begin, length);
    names.add({{name, parameter}});
    return parameter;
  };
  const at::Tensor first = add("fc1.weight", 0, 4);
  names.add({{"fc1.again", first}});  // tied: the same gradient
  EXPECT_EQ(names.of(bucket), "the gradient of fc1.weight");
  add("fc2.weight", 4, 3);
  EXPECT_EQ(names.of(bucket), "the gradients of fc1.weight and 1 other");
  add("fc3.weight", 7, 3);
  EXPECT_EQ(names.of(bucket), "the gradients of fc1.weight and 2 others");
  EXPECT_EQ(names.of(bucket.narrow(0, 8, 1)), "the gradient of fc3.weight");
}

CHILD_TEST(TensorNames, OverlapIsSharedMemory) {
  const at::Tensor memory = at::arange(10);
  EXPECT_TRUE(overlap(memory, memory));
  EXPECT_TRUE(overlap(memory.narrow(0, 0, 6), memory.narrow(0, 5, 5)));
  EXPECT_FALSE(overlap(memory.narrow(0, 0, 5), memory.narrow(0, 5, 5)));
  EXPECT_FALSE(overlap(memory, memory.clone()));
  EXPECT_FALSE(overlap(memory, memory.narrow(0, 5, 0)));
  EXPECT_FALSE(overlap(memory, at::Tensor()));
}

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

}  // namespace
}  // namespace ddp
