#include "ddp/backends/worker_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "support/ranks.h"

namespace ddp {
namespace {

TEST(WorkerQueue, DoesJobsInOrderAndAllOfThem) {
  testing::in_child([] {
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
  });
}

TEST(WorkerQueue, BlockedQueueDelaysNoOther) {
  testing::in_child([] {
    std::promise<void> open;
    WorkerQueue blocked, other;
    blocked.submit([future = open.get_future().share()] { future.wait(); });
    other.submit([&] { open.set_value(); });
  });
}

TEST(WorkerQueue, ReleasesWhatAJobHeldBeforeTheNext) {
  testing::in_child([] {
    auto held = std::make_shared<int>(1);
    const std::weak_ptr<int> watched = held;
    std::promise<bool> gone;
    WorkerQueue queue;
    queue.submit([held = std::move(held)] {});
    queue.submit([&] { gone.set_value(watched.expired()); });
    EXPECT_TRUE(gone.get_future().get());
  });
}

TEST(WorkerQueue, DrainWaitsForWhatWasSubmitted) {
  testing::in_child([] {
    auto held = std::make_shared<int>(1);
    const std::weak_ptr<int> watched = held;
    bool done = false;
    WorkerQueue queue;
    queue.submit([&done, held = std::move(held)] { done = true; });
    queue.drain();
    EXPECT_TRUE(done);
    EXPECT_TRUE(watched.expired());
  });
}

}  // namespace
}  // namespace ddp
