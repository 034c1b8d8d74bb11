#include "ddp/lane.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "support/ranks.h"

namespace ddp {
namespace {

TEST(Lane, DoesJobsInOrderAndAllOfThem) {
  testing::in_child([] {
    std::vector<int> done;
    {
      Lane lane;
      for (int i = 0; i < 1'000; ++i) {
        lane.submit([&done, i] { done.push_back(i); });
      }
    }
    ASSERT_EQ(done.size(), 1'000U);
    for (int i = 0; i < 1'000; ++i) {
      EXPECT_EQ(done[i], i);
    }
  });
}

TEST(Lane, BlockedLaneDelaysNoOther) {
  testing::in_child([] {
    std::promise<void> open;
    Lane blocked, other;
    blocked.submit([future = open.get_future().share()] { future.wait(); });
    other.submit([&] { open.set_value(); });
  });
}

TEST(Lane, ReleasesWhatAJobHeldBeforeTheNext) {
  testing::in_child([] {
    auto held = std::make_shared<int>(1);
    const std::weak_ptr<int> watched = held;
    std::promise<bool> gone;
    Lane lane;
    lane.submit([held = std::move(held)] {});
    lane.submit([&] { gone.set_value(watched.expired()); });
    EXPECT_TRUE(gone.get_future().get());
  });
}

TEST(Lane, DrainWaitsForWhatWasSubmitted) {
  testing::in_child([] {
    auto held = std::make_shared<int>(1);
    const std::weak_ptr<int> watched = held;
    bool done = false;
    Lane lane;
    lane.submit([&done, held = std::move(held)] { done = true; });
    lane.drain();
    EXPECT_TRUE(done);
    EXPECT_TRUE(watched.expired());
  });
}

}  // namespace
}  // namespace ddp
