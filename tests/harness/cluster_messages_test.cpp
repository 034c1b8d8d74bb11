// Messages of a rank whose peers do the same: who their other ends are, and when they end.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "ddp/cluster/messages.h"
#include "harness/error_of.h"

namespace ddp::cluster {

namespace {

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
  EXPECT_NE(error.find("a send to rank 1 never ends: every rank of the simulated cluster does what "
                       "rank 0 does, and waits here, so nobody receives it"),
            std::string::npos)
      << error;
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
