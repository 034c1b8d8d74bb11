// When things happen in a simulated rank: its clocks, and messages whose peers do the same.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "common/checks.h"
#include "ddp/cluster/clocks.h"

namespace ddp::cluster {
namespace {

using ddp::testing::expect_contains;

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

constexpr std::int64_t kAlpha = 100;

Messages messages_of(int ranks, bool others_in_step = false, int rank = 0) {
  return Messages({.rank = rank,
                   .world_size = ranks,
                   .cost_ns = [](std::int64_t bytes) { return kAlpha + bytes; },
                   .others_in_step = others_in_step});
}

MessageEnd send_to(int peer, std::int64_t now, std::int64_t bytes = 0, int tag = 0) {
  return {.sends = true, .peer = peer, .tag = tag, .bytes = bytes, .launched_ns = now};
}
MessageEnd receive_from(int peer, std::int64_t now, std::int64_t bytes = 0, int tag = 0) {
  return {.sends = false, .peer = peer, .tag = tag, .bytes = bytes, .launched_ns = now};
}

// To the right, from the left: begins when the later of both is launched.
TEST(Messages, AroundARing) {
  for (const int rank : {0, 2, 4}) {
    Messages messages = messages_of(5, false, rank);
    const auto received = messages.launch(receive_from((rank + 4) % 5, 30, 8));
    const auto sent = messages.launch(send_to((rank + 1) % 5, 50, 8));
    messages.await(received);
    EXPECT_EQ(received->begin_ns, 50);
    EXPECT_EQ(received->end_ns, 50 + kAlpha + 8);
    EXPECT_EQ(sent->end_ns, received->end_ns);
  }
}

// With rank 2 of 8: it sends nothing to the rank that is as far back.
TEST(Messages, ExchangedWithAPartner) {
  Messages messages = messages_of(8);
  const auto received = messages.launch(receive_from(2, 10));
  const auto sent = messages.launch(send_to(2, 20));
  messages.await(sent);
  EXPECT_EQ(received->end_ns, 20 + kAlpha);
}

// A message to the right may be the partner's in both ways; round the ring is what all ranks do.
TEST(Messages, RoundTheRingGoesBeforeExchange) {
  Messages messages = messages_of(5);
  const auto from_left = messages.launch(receive_from(4, 0, 1));
  const auto to_left = messages.launch(send_to(4, 10, 2));
  const auto to_right = messages.launch(send_to(1, 20, 3));
  const auto from_right = messages.launch(receive_from(1, 30, 4));
  messages.await(from_left);
  messages.await(from_right);
  EXPECT_EQ(from_right->begin_ns, 30) << "the first that was sent is the port's first";
  EXPECT_EQ(to_left->end_ns, from_right->end_ns);
  EXPECT_EQ(to_right->end_ns, from_left->end_ns);
  EXPECT_EQ(from_left->begin_ns, 30 + kAlpha + 4);
}

TEST(Messages, OnePortDoesOneAfterTheOther) {
  Messages messages = messages_of(4);
  std::vector<MessageEndPtr> received;
  for (int i = 0; i < 3; ++i) {
    received.push_back(messages.launch(receive_from(3, 0)));
    messages.launch(send_to(1, 0));
  }
  messages.await(received[2]);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(received[i]->end_ns, (i + 1) * kAlpha);
  }
}

TEST(Messages, TagsKeepMessagesApart) {
  Messages messages = messages_of(2);
  const auto second = messages.launch(receive_from(1, 0, 0, 2));
  const auto first = messages.launch(receive_from(1, 0, 0, 1));
  messages.launch(send_to(1, 5, 0, 1));
  messages.launch(send_to(1, 6, 0, 2));
  messages.await(second);
  EXPECT_EQ(first->end_ns, 5 + kAlpha);
  EXPECT_EQ(second->end_ns, 5 + 2 * kAlpha);
}

// Every rank would wait: the deadlock of blocking sends all around a ring.
TEST(Messages, WhatAllWaitForNeverEnds) {
  Messages messages = messages_of(4);
  const auto sent = messages.launch(send_to(1, 0));
  const std::string error = ddp::testing::error_of([&] { messages.await(sent); });
  expect_contains(error,
                  "a send to rank 1 never ends: every rank of the simulated cluster does what "
                  "rank 0 does, and waits here, so nobody receives it");
}

// A tree's root: each child comes to its send when the root comes to its recv.
TEST(Messages, OthersInStepComeWhenThisRankDoes) {
  Messages messages = messages_of(8, /*others_in_step=*/true);
  std::int64_t now = 0;
  for (const int child : {1, 2, 4}) {
    const auto received = messages.launch(receive_from(child, now));
    messages.await(received);
    EXPECT_EQ(received->end_ns, now + kAlpha);
    now = received->end_ns;
  }
  const auto sent = messages.launch(send_to(4, now));
  messages.await(sent);
  EXPECT_EQ(sent->end_ns, 4 * kAlpha);
}

TEST(Messages, ResetForgetsWhatWasLaunched) {
  Messages messages = messages_of(2);
  const auto old = messages.launch(send_to(1, 0));
  messages.launch(receive_from(1, 0));
  messages.reset();
  const auto received = messages.launch(receive_from(1, 7));
  messages.launch(send_to(1, 7));
  messages.await(received);
  EXPECT_EQ(received->end_ns, 7 + kAlpha);
  EXPECT_EQ(old->end_ns, -1);
}

}  // namespace
}  // namespace ddp::cluster
