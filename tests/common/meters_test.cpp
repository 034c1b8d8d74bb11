// What is measured: memory, and statistics that agree with numpy's.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <optional>
#include <thread>

#include "common/checks.h"
#include "common/ranks.h"
#include "ddp/meters/memory_meter.h"
#include "ddp/meters/statistics.h"

namespace ddp {
namespace {

using testing::Rank;
using testing::run_ranks;

CHILD_TEST(MemoryMeter, CountsTensorsAndNotViews) {
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
}

CHILD_TEST(MemoryMeter, EmptyTensorsNeedNoAllocation) {
  const MemoryMeter meter;
  const at::Tensor empty = at::empty({0, 7});
  EXPECT_EQ(meter.live_bytes(), 0);
  EXPECT_EQ(meter.allocations(), 0);
}

CHILD_TEST(MemoryMeter, RemembersThePeakSinceItsReset) {
  MemoryMeter meter;
  const at::Tensor kept = at::empty({10});
  at::empty({90});
  EXPECT_EQ(meter.live_bytes(), 40);
  EXPECT_EQ(meter.peak_bytes(), 400);
  meter.reset_peak();
  EXPECT_EQ(meter.peak_bytes(), 40);
  at::empty({15});
  EXPECT_EQ(meter.peak_bytes(), 100);
  EXPECT_EQ(meter.peak_sizes(), (MemoryMeter::Sizes{{40, 1}, {60, 1}}));
  EXPECT_EQ(meter.live_sizes(), (MemoryMeter::Sizes{{40, 1}}));
}

CHILD_TEST(MemoryMeter, FollowsATensorThatIsResized) {
  const MemoryMeter meter;
  const at::Tensor tensor = at::empty({10});
  tensor.resize_({100});
  EXPECT_EQ(meter.live_bytes(), 400);
  EXPECT_EQ(meter.peak_bytes(), 440) << "both while it is copied";
  tensor.resize_({10});
  EXPECT_EQ(meter.live_bytes(), 400) << "a storage does not shrink";
}

CHILD_TEST(MemoryMeter, CountsOnEveryThread) {
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
}

CHILD_TEST(MemoryMeter, CountsWhatBackwardAllocates) {
  const at::Tensor weight = at::ones({100}).set_requires_grad(true);
  const at::Tensor loss = (weight * weight).sum();
  const MemoryMeter meter;
  torch::autograd::backward({loss}, {});
  EXPECT_EQ(meter.live_bytes(), 400) << "the gradient";
  EXPECT_GE(meter.peak_bytes(), 800) << "and what it is the sum of";
  weight.mutable_grad().reset();
  EXPECT_EQ(meter.live_bytes(), 0);
}

CHILD_TEST(MemoryMeter, MemoryMayOutliveItOrBeOlder) {
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
}

CHILD_TEST(MemoryMeter, OnlyOneAtATime) {
  const MemoryMeter meter;
  EXPECT_THROW(const MemoryMeter second, c10::Error);
  const at::Tensor tensor = at::empty({10});
  EXPECT_EQ(meter.live_bytes(), 40) << "the first one goes on";
}

CHILD_TEST(MemoryMeter, DoesNotSeeWhatIsNotTheAllocators) {
  const at::Tensor older = at::empty({10});
  const MemoryMeter meter;
  std::vector<float> values(100);
  const at::Tensor on_values = at::from_blob(values.data(), {100});
  older.resize_({1000});
  EXPECT_EQ(meter.live_bytes(), 0);
  EXPECT_EQ(meter.allocations(), 0);
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

// Expected values from numpy.percentile.
TEST(Statistics, PercentilesAreNumpys) {
  const std::vector<double> values = {15, 20, 35, 40, 50};
  EXPECT_DOUBLE_EQ(percentile(values, 0), 15);
  EXPECT_DOUBLE_EQ(percentile(values, 40), 29);
  EXPECT_DOUBLE_EQ(percentile(values, 50), 35);
  EXPECT_DOUBLE_EQ(percentile(values, 90), 46);
  EXPECT_DOUBLE_EQ(percentile(values, 99), 49.6);
  EXPECT_DOUBLE_EQ(percentile(values, 100), 50);
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 50), 2.5) << "order must not matter";
  EXPECT_DOUBLE_EQ(percentile({7}, 99), 7);
  EXPECT_THROW(percentile({}, 50), c10::ValueError);
  EXPECT_THROW(percentile(values, 101), c10::ValueError);
  EXPECT_THROW(percentile(values, std::nan("")), c10::ValueError);
}

TEST(Statistics, SummaryOfOneToHundred) {
  std::vector<double> values;
  for (int i = 1; i <= 100; ++i) {
    values.push_back(i);
  }
  const Summary summary = summarize(values);
  EXPECT_DOUBLE_EQ(summary.mean, 50.5);
  EXPECT_DOUBLE_EQ(summary.p50, 50.5);
  EXPECT_DOUBLE_EQ(summary.p90, 90.1);
  EXPECT_DOUBLE_EQ(summary.p95, 95.05);
  EXPECT_DOUBLE_EQ(summary.p99, 99.01);
  EXPECT_THROW(summarize({}), c10::ValueError);
}

TEST(Statistics, LapsAddUpToTheWhole) {
  Stopwatch whole, laps;
  double sum = laps.lap();
  sum += laps.lap();
  EXPECT_GE(sum, 0);
  EXPECT_LE(sum, whole.seconds());
}

}  // namespace
}  // namespace ddp
