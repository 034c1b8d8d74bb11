// The clocks of a simulated rank: what waits for what, and what runs beside what.
#include <gtest/gtest.h>

#include "ddp/cluster/clocks.h"

namespace ddp::cluster {

namespace {

void expect(const Interval& time, std::int64_t begin, std::int64_t end) {
  EXPECT_EQ(time.begin, begin);
  EXPECT_EQ(time.end, end);
}

TEST(Clocks, TheHostRunsAheadOfTheComputeStream) {
  Clocks clocks({.launch_ns = 10});
  expect(clocks.compute(100), 10, 110);
  expect(clocks.compute(100), 110, 210);
  EXPECT_EQ(clocks.host(), 20);
  EXPECT_EQ(clocks.now(), 210);
}

TEST(Clocks, AHostThatIsSlowerThanTheDeviceDecides) {
  Clocks clocks({.launch_ns = 100});
  expect(clocks.compute(10), 100, 110);
  expect(clocks.compute(10), 200, 210);
}

TEST(Clocks, TheHostWaitsWhereTheLaunchQueueIsFull) {
  Clocks clocks({.launch_ns = 10, .launch_queue = 3});
  clocks.compute(100);
  clocks.compute(100, {.kernels = 2});
  EXPECT_EQ(clocks.host(), 20);
  expect(clocks.compute(100), 210, 310);
  EXPECT_EQ(clocks.host(), 110) << "the first one has left the queue";
}

// It needs what was computed before its launch, nothing that is launched later.
TEST(Clocks, ACollectiveBeginsAfterComputingLaunchedBeforeAndTheCollectiveBefore) {
  Clocks clocks({.launch_ns = 0});
  clocks.compute(100);
  expect(clocks.communicate(clocks.launch(), 500), 100, 600);
  clocks.compute(50);
  expect(clocks.communicate(clocks.launch(), 10), 600, 610);
  clocks.compute(1'000);
  EXPECT_EQ(clocks.now(), 1'150) << "computing goes on beside communication";
  expect(clocks.communicate(clocks.launch(), 10), 1'150, 1'160);
}

TEST(Clocks, AWaitHoldsUpTheComputeStreamNotTheHost) {
  Clocks clocks({.launch_ns = 10});
  const Interval collective = clocks.communicate(clocks.launch(), 500);
  clocks.wait_until(collective.end);
  EXPECT_EQ(clocks.host(), 10);
  EXPECT_EQ(clocks.now(), 510);
  EXPECT_EQ(clocks.waited(), 500);
  expect(clocks.compute(5), 510, 515);
  EXPECT_EQ(clocks.host(), 20);
}

TEST(Clocks, AWaitHoldsUpTheHostWhereTheClusterSaysSo) {
  Clocks clocks({.launch_ns = 10, .wait_blocks_host = true});
  clocks.wait_until(clocks.communicate(clocks.launch(), 500).end);
  EXPECT_EQ(clocks.host(), 510);
  expect(clocks.compute(5), 520, 525);
}

TEST(Clocks, PollingKeepsTheHostBusyInAnyCase) {
  Clocks clocks({.launch_ns = 10});
  clocks.poll_until(clocks.communicate(clocks.launch(), 500).end);
  EXPECT_EQ(clocks.host(), 510);
}

TEST(Clocks, AWaitForWhatHasEndedCostsNothing) {
  Clocks clocks({.launch_ns = 0});
  const Interval collective = clocks.communicate(clocks.launch(), 5);
  clocks.compute(100);
  clocks.wait_until(collective.end);
  EXPECT_EQ(clocks.now(), 100);
  EXPECT_EQ(clocks.waited(), 0);
}

// Collectives from 100 to 200 and from 300 to 350; beside them computing takes 25 % longer.
TEST(Clocks, CommunicationSlowsTheComputingBesideIt) {
  const auto after = [](std::int64_t before, std::int64_t ns) {
    Clocks clocks({.launch_ns = 0, .slowdown_beside_communication = 1.25});
    clocks.communicate(100, 100);
    clocks.communicate(300, 50);
    clocks.compute(before);
    return clocks.compute(ns);
  };
  expect(after(0, 100), 0, 100);      // ends as the first begins
  expect(after(0, 140), 0, 150);      // 40 beside it: 50
  expect(after(0, 180), 0, 200);      // 80 beside it: all of it
  expect(after(0, 280), 0, 300);      // and 100 alone
  expect(after(0, 330), 0, 360);      // 40 beside the second, 10 after it
  expect(after(120, 20), 125, 150);   // begins beside the first
  expect(after(500, 100), 530, 630);  // after both
}

// A collective from 100 to 200, beside which each kernel takes 5 longer: 4 of 20, in all.
TEST(Clocks, CommunicationDelaysEachKernelBesideIt) {
  const auto after = [](std::int64_t ns, std::int64_t kernels) {
    Clocks clocks({.launch_ns = 0, .kernel_ns_beside_communication = 5});
    clocks.communicate(100, 100);
    return clocks.compute(ns, {.kernels = kernels});
  };
  expect(after(100, 4), 0, 100);   // all before it
  expect(after(150, 6), 0, 160);   // a third of it, and of its kernels
  expect(after(0, 4), 0, 0);       // nothing to run
  expect(after(300, 60), 0, 350);  // half as fast until 200
}

// A collective from 100 to 200 and one from 200 to 230; beside computing they take twice as long.
TEST(Clocks, ComputingSlowsTheCommunicationBesideIt) {
  const auto after = [](std::int64_t ns) {
    Clocks clocks({.launch_ns = 0, .slowdown_beside_computing = 2});
    const Interval first = clocks.communicate(100, 100), second = clocks.communicate(0, 30);
    EXPECT_EQ(second.end, 230);
    expect(clocks.compute(ns), 0, ns);  // that is not slowed here
    const std::int64_t last = clocks.communication();
    clocks.wait_until(first.end);  // for its true end
    return std::pair(clocks.now(), last);
  };
  EXPECT_EQ(after(100), std::pair(std::int64_t{200}, std::int64_t{230}));
  EXPECT_EQ(after(140), std::pair(std::int64_t{220}, std::int64_t{250}));  // 20 done in 40
  EXPECT_EQ(after(300), std::pair(std::int64_t{300}, std::int64_t{330}));  // all of the first
  EXPECT_EQ(after(320), std::pair(std::int64_t{320}, std::int64_t{340}));  // 10 of the second
}

TEST(Clocks, ResetForgetsAll) {
  Clocks clocks({.launch_ns = 10, .slowdown_beside_communication = 2});
  clocks.poll_until(clocks.communicate(clocks.launch(), 500).end);
  clocks.compute(7);
  clocks.reset();
  expect(clocks.compute(100), 10, 110);
  EXPECT_EQ(clocks.communication(), 0);
  EXPECT_EQ(clocks.waited(), 0);
}

}  // namespace

}  // namespace ddp::cluster
