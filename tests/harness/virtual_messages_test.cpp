// Virtual times of messages: one outgoing and one incoming port per rank, full duplex.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "ddp/collectives.h"
#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"
#include "ddp/simulation/virtual_time.h"

namespace ddp {

namespace {

constexpr NetworkModel kNetwork{.alpha_ns = 100, .beta_ns_per_byte = 2.5, .launch_overhead_ns = 7};
constexpr std::int64_t kOverhead = 7;
constexpr std::int64_t kMessage = 100 + 400;  // 160 bytes at 2.5 ns

at::Tensor message() { return at::ones({40}); }

using Body = std::function<void(Client& client, const ProcessGroupPtr& group)>;

// All ranks begin a step at once; its times are from there.
struct PricedRun {
  PricedRun(int ranks, const Body& body)
      : evidence(run_refereed({.ranks = ranks}, {},
                              [&](Client& client, RankContext&) {
                                const auto group = make_group(client.shared_from_this());
                                client.go_to({.phase = Phase::kCall, .step = 0});
                                body(client, group);
                                client.go_to({.phase = Phase::kSetup, .step = 0});
                              })),
        time(evidence, kNetwork, cost) {
    EXPECT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  }

  // When a rank's message ended, by the order in which the messages did.
  std::int64_t end(int rank, std::size_t index) const {
    std::vector<Span> messages = time.spans(rank);
    std::erase_if(messages, [](const Span& s) { return s.kind != SpanKind::kCommunication; });
    return messages.at(index).end_ns;
  }

  const ComputeCost cost = [](const Seen& seen, int) {
    return seen.kind == EventKind::kCompute ? seen.number : 0;
  };
  Evidence evidence;
  VirtualTime time;
};

TEST(VirtualMessages, StartWhenBothEndsAreThere) {
  for (const int late : {0, 1}) {
    const PricedRun run(2, [&](Client& client, const auto& group) {
      if (client.rank() == late) {
        client.compute(3'000, "something");
      }
      client.rank() == 0 ? send(message(), 1, group) : recv(message(), 0, group);
    });
    EXPECT_EQ(run.time.step_ns(0), 3'000 + kOverhead + kMessage);
  }
}

// All ranks send to the right and receive from the left, as in a ring all-reduce: all messages of a
// step together take the time of one.
TEST(VirtualMessages, ARingStepTakesOneMessage) {
  for (const int ranks : {2, 3, 8}) {
    const PricedRun run(ranks, [&](Client& client, const auto& group) {
      const at::Tensor incoming = message();
      for (int step = 1; step < ranks; ++step) {
        const WorkPtr sending = send_async(message(), (client.rank() + 1) % ranks, group);
        recv(incoming, (client.rank() + ranks - 1) % ranks, group);
        sending->wait();
      }
    });
    EXPECT_EQ(run.time.step_ns(0), (ranks - 1) * (2 * kOverhead + kMessage));
  }
}

// A thread's launches and waits are by its own clock, in whichever order they are seen.
TEST(VirtualMessages, AThreadMaySendWhileAnotherReceives) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    const PricedRun run(3, [](Client& client, const auto& group) {
      const at::Tensor incoming = message();
      for (int step = 1; step < 3; ++step) {
        std::thread sender([&] { send(message(), (client.rank() + 1) % 3, group); });
        recv(incoming, (client.rank() + 2) % 3, group);
        sender.join();
      }
    });
    // The second recv's launch costs its rank time; the sender's is by then.
    EXPECT_EQ(run.time.step_ns(0), 2 * (kOverhead + kMessage));
  }
}

TEST(VirtualMessages, APortDoesOneAfterTheOther) {
  for (const bool out : {true, false}) {
    const PricedRun run(3, [out](Client& client, const auto& group) {
      const auto launch = [&](int peer) {
        return (client.rank() == 0) == out ? send_async(message(), peer, group)
                                           : recv_async(message(), peer, group);
      };
      if (client.rank() > 0) {
        launch(0)->wait();
        return;
      }
      const WorkPtr first = launch(1), second = launch(2);
      second->wait();
      first->wait();
    });
    EXPECT_EQ(run.end(1, 0), kOverhead + kMessage);
    EXPECT_EQ(run.end(2, 0), kOverhead + 2 * kMessage);
  }
}

// Tags make this legal, whichever end blocks.
TEST(VirtualMessages, OppositeOrdersDoNotBlockEachOther) {
  const PricedRun run(2, [](Client& client, const auto& group) {
    if (client.rank() == 0) {
      send(message(), 1, group, /*tag=*/0);
      send(message(), 1, group, /*tag=*/1);
      return;
    }
    const WorkPtr second = recv_async(message(), 0, group, /*tag=*/1);
    const WorkPtr first = recv_async(message(), 0, group, /*tag=*/0);
    first->wait();
    second->wait();
  });
  EXPECT_EQ(run.end(1, 0), 2 * kOverhead + kMessage);
  EXPECT_EQ(run.end(1, 1), 3 * kOverhead + 2 * kMessage);
}

TEST(VirtualMessages, DoNotDelayCollectives) {
  const PricedRun run(2, [](Client& client, const auto& group) {
    const WorkPtr transfer =
        client.rank() == 0 ? send_async(message(), 1, group) : recv_async(message(), 0, group);
    all_reduce(message(), group);
    transfer->wait();
  });
  EXPECT_EQ(run.time.step_ns(0), 2 * kOverhead + 2 * (100 + 200));
}

// Four messages, each of which was given to a port after another one that waits for it: 0 -> 2
// before 0 -> 3 before 1 -> 3 before 1 -> 2 before 0 -> 2.
TEST(VirtualMessages, ACircleBeginsWithTheLowestRank) {
  const PricedRun run(4, [](Client& client, const auto& group) {
    const auto post = [&](int peer) {
      return client.rank() < 2 ? send_async(message(), peer, group)
                               : recv_async(message(), peer, group);
    };
    constexpr int kFirstPeer[] = {2, 3, 1, 0};
    constexpr int kSecondPeer[] = {3, 2, 0, 1};
    const WorkPtr first = post(kFirstPeer[client.rank()]);
    const WorkPtr second = post(kSecondPeer[client.rank()]);
    first->wait();
    second->wait();
  });
  EXPECT_EQ(run.end(0, 0), 2 * kOverhead + kMessage);
  EXPECT_EQ(run.end(1, 1), 2 * kOverhead + 4 * kMessage);
}

// Rank 1 receives from rank 0 only once it has heard from rank 2, to whom rank 0 sends later.
TEST(VirtualMessages, AMessageThatNobodyTakesYetIsPassed) {
  const PricedRun run(3, [](Client& client, const auto& group) {
    if (client.rank() == 0) {
      const WorkPtr to_1 = send_async(message(), 1, group);
      send(message(), 2, group);
      to_1->wait();
    } else if (client.rank() == 1) {
      recv(message(), 2, group);
      recv(message(), 0, group);
    } else {
      recv(message(), 0, group);
      send(message(), 1, group);
    }
  });
  const std::int64_t heard = 2 * kOverhead + kMessage;
  EXPECT_EQ(run.end(2, 0), heard);
  EXPECT_EQ(run.end(1, 0), heard + kOverhead + kMessage);
  EXPECT_EQ(run.time.step_ns(0), heard + 2 * kOverhead + 2 * kMessage);
}

}  // namespace

}  // namespace ddp
