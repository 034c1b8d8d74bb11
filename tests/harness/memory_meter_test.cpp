// The memory meter: what it counts, and what it does not see.
#include "ddp/meters/memory_meter.h"

#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <optional>
#include <thread>

#include "support/ranks.h"

namespace ddp {
namespace {

using testing::in_child;
using testing::Rank;
using testing::run_ranks;

TEST(MemoryMeter, CountsTensorsAndNotViews) {
  in_child([] {
    const MemoryMeter meter;
    at::Tensor a = at::empty({10, 3});
    at::Tensor b = at::ones({5}, at::kDouble);
    EXPECT_EQ(meter.live_bytes(), 120 + 40);
    EXPECT_EQ(meter.allocations(), 2);
    at::Tensor view = a.view({30}).narrow(0, 5, 10);
    EXPECT_EQ(meter.live_bytes(), 160) << "a view has no memory of its own";
    a.reset();
    EXPECT_EQ(meter.live_bytes(), 160) << "but keeps that of its base";
    view.reset();
    b.reset();
    EXPECT_EQ(meter.live_bytes(), 0);
  });
}

TEST(MemoryMeter, EmptyTensorsNeedNoAllocation) {
  in_child([] {
    const MemoryMeter meter;
    const at::Tensor empty = at::empty({0, 7});
    EXPECT_EQ(meter.live_bytes(), 0);
    EXPECT_EQ(meter.allocations(), 0);
  });
}

TEST(MemoryMeter, RemembersThePeakSinceItsReset) {
  in_child([] {
    MemoryMeter meter;
    const at::Tensor kept = at::empty({10});
    at::empty({90});
    EXPECT_EQ(meter.live_bytes(), 40);
    EXPECT_EQ(meter.peak_bytes(), 400);
    meter.reset_peak();
    EXPECT_EQ(meter.peak_bytes(), 40);
    at::empty({15});
    EXPECT_EQ(meter.peak_bytes(), 100);
  });
}

TEST(MemoryMeter, FollowsATensorThatIsResized) {
  in_child([] {
    const MemoryMeter meter;
    const at::Tensor tensor = at::empty({10});
    tensor.resize_({100});
    EXPECT_EQ(meter.live_bytes(), 400);
    EXPECT_EQ(meter.peak_bytes(), 440) << "both while it is copied";
    tensor.resize_({10});
    EXPECT_EQ(meter.live_bytes(), 400) << "a storage does not shrink";
  });
}

TEST(MemoryMeter, CountsOnEveryThread) {
  in_child([] {
    const MemoryMeter meter;
    at::Tensor from_here = at::empty({10});
    at::Tensor from_there;
    std::thread([&] {
      from_here.reset();
      from_there = at::empty({20});
    }).join();
    EXPECT_EQ(meter.live_bytes(), 80);
    from_there.reset();
    EXPECT_EQ(meter.live_bytes(), 0);
  });
}

TEST(MemoryMeter, CountsWhatBackwardAllocates) {
  in_child([] {
    const at::Tensor weight = at::ones({100}).set_requires_grad(true);
    const at::Tensor loss = (weight * weight).sum();
    const MemoryMeter meter;
    torch::autograd::backward({loss}, {});
    EXPECT_EQ(meter.live_bytes(), 400) << "the gradient";
    EXPECT_GE(meter.peak_bytes(), 800) << "and what it is the sum of";
    weight.mutable_grad().reset();
    EXPECT_EQ(meter.live_bytes(), 0);
  });
}

TEST(MemoryMeter, MemoryMayOutliveItOrBeOlder) {
  in_child([] {
    at::Tensor older = at::ones({10});
    at::Tensor outlives;
    {
      const MemoryMeter meter;
      older.reset();
      EXPECT_EQ(meter.live_bytes(), 0);
      outlives = at::ones({20});
    }
    const at::Tensor uncounted = at::ones({30});
    const MemoryMeter next;
    EXPECT_EQ(next.live_bytes(), 0);
    outlives.resize_({40});  // by its storage's allocator, which is the meter's
    EXPECT_EQ(next.live_bytes(), 160);
    EXPECT_EQ(outlives[19].item<float>(), 1);
    outlives.reset();
    EXPECT_EQ(next.live_bytes(), 0);
    EXPECT_EQ(uncounted.sum().item<float>(), 30);
  });
}

TEST(MemoryMeter, OnlyOneAtATime) {
  in_child([] {
    const MemoryMeter meter;
    EXPECT_THROW(const MemoryMeter second, c10::Error);
    const at::Tensor tensor = at::empty({10});
    EXPECT_EQ(meter.live_bytes(), 40) << "the first one goes on";
  });
}

TEST(MemoryMeter, DoesNotSeeWhatIsNotTheAllocators) {
  in_child([] {
    const at::Tensor older = at::empty({10});
    const MemoryMeter meter;
    std::vector<float> values(100);
    const at::Tensor on_values = at::from_blob(values.data(), {100});
    older.resize_({1000});
    EXPECT_EQ(meter.live_bytes(), 0);
    EXPECT_EQ(meter.allocations(), 0);
  });
}

TEST(MemoryMeter, DoesNotSeeTheGradedGroup) {
  run_ranks({}, [](Rank& rank) {
    const MemoryMeter meter;
    const at::Tensor values = at::ones({100});
    const at::Tensor doubles = at::ones({100}, at::kDouble);
    const std::int64_t allocations = meter.allocations();
    const WorkPtr first = all_reduce_async(values, rank.group());
    const WorkPtr second = all_reduce_async(doubles, rank.group());
    first->wait();
    second->getFuture()->wait();
    broadcast(values, rank.group());
    EXPECT_EQ(meter.live_bytes(), 1200);
    EXPECT_EQ(meter.peak_bytes(), 1200);
    EXPECT_EQ(meter.allocations(), allocations);
  });
}

TEST(MemoryMeter, AGroupKeepsNoTensorOfWhatIsComplete) {
  run_ranks({}, [](Rank& rank) {
    const MemoryMeter meter;
    all_reduce_async(at::ones({100}), rank.group())->wait();
    EXPECT_EQ(meter.live_bytes(), 0) << "waited for";
    const WorkPtr work = all_reduce_async(at::ones({100}), rank.group());
    work->getFuture()->wait();
    EXPECT_EQ(meter.live_bytes(), 400) << "the handle's";
  });
}

}  // namespace
}  // namespace ddp
