// Virtual times of messages: one outgoing and one incoming port per rank, full duplex.
#include "support/graded_ranks.h"

namespace ddp {
namespace {

using testing::Rank;

constexpr NetworkModel kNetwork{.alpha_ns = 100, .beta_ns_per_byte = 2.5, .launch_overhead_ns = 7};
constexpr std::int64_t kOverhead = 7;
constexpr std::int64_t kElements = 40;
constexpr std::int64_t kMessage = 100 + 400;  // 160 bytes at 2.5 ns

at::Tensor message() { return at::ones({kElements}); }

// Each body starts with all clocks at the same time, and runs twice.
void run(int world_size, const std::function<void(Rank&, std::int64_t begin)>& body) {
  testing::RankOptions options;
  options.world_size = world_size;
  options.network = kNetwork;
  testing::run_ranks(options, [&](Rank& rank) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      body(rank, rank.network().start_step());
    }
  });
}

TEST(SimulatedMessages, StartWhenBothEndsAreThere) {
  for (const int late : {0, 1}) {
    run(2, [&](Rank& rank, std::int64_t begin) {
      if (rank.rank() == late) {
        rank.clock()->advance(3'000);
      }
      const at::Tensor tensor = message();
      rank.rank() == 0 ? send(tensor, 1, rank.group()) : recv(tensor, 0, rank.group());
      EXPECT_EQ(rank.clock()->now(), begin + 3'000 + kOverhead + kMessage);
    });
  }
}

// All ranks send to the right and receive from the left, as in a ring all-reduce: all messages
// together take the time of one.
TEST(SimulatedMessages, RingStepTakesOneMessage) {
  for (int world_size = 2; world_size <= 8; ++world_size) {
    run(world_size, [&](Rank& rank, std::int64_t begin) {
      const int right = (rank.rank() + 1) % world_size;
      const int left = (rank.rank() + world_size - 1) % world_size;
      const at::Tensor outgoing = message();
      const at::Tensor incoming = message();
      for (int step = 1; step <= world_size - 1; ++step) {
        const WorkPtr sending = send_async(outgoing, right, rank.group());
        recv(incoming, left, rank.group());
        sending->wait();
        EXPECT_EQ(rank.clock()->now(), begin + step * (2 * kOverhead + kMessage));
      }
    });
  }
}

TEST(SimulatedMessages, OnePortOut) {
  run(3, [](Rank& rank, std::int64_t begin) {
    const at::Tensor tensor = message();
    if (rank.rank() == 0) {
      const WorkPtr first = send_async(tensor, 1, rank.group());
      const WorkPtr second = send_async(tensor, 2, rank.group());
      second->wait();
      EXPECT_EQ(rank.clock()->now(), begin + kOverhead + 2 * kMessage);
      first->wait();
    } else {
      recv(tensor, 0, rank.group());
      EXPECT_EQ(rank.clock()->now(), begin + kOverhead + rank.rank() * kMessage);
    }
  });
}

TEST(SimulatedMessages, OnePortIn) {
  run(3, [](Rank& rank, std::int64_t begin) {
    const at::Tensor a = message();
    const at::Tensor b = message();
    if (rank.rank() == 0) {
      const WorkPtr from_2 = recv_async(a, 2, rank.group());
      const WorkPtr from_1 = recv_async(b, 1, rank.group());
      from_1->wait();
      EXPECT_EQ(rank.clock()->now(), begin + kOverhead + 2 * kMessage);
      from_2->wait();
    } else {
      send(a, 0, rank.group());
      EXPECT_EQ(rank.clock()->now(), begin + kOverhead + (3 - rank.rank()) * kMessage);
    }
  });
}

TEST(SimulatedMessages, BothWaysAtOnce) {
  run(2, [](Rank& rank, std::int64_t begin) {
    const at::Tensor outgoing = message();
    const at::Tensor incoming = message();
    const WorkPtr receiving = recv_async(incoming, 1 - rank.rank(), rank.group());
    send(outgoing, 1 - rank.rank(), rank.group());
    receiving->wait();
    EXPECT_EQ(rank.clock()->now(), begin + 2 * kOverhead + kMessage);
  });
}

// Tags make this legal, whichever end blocks.
TEST(SimulatedMessages, OppositeOrdersDoNotBlockEachOther) {
  run(2, [](Rank& rank, std::int64_t begin) {
    const at::Tensor a = message();
    const at::Tensor b = message();
    if (rank.rank() == 0) {
      send(a, 1, rank.group(), /*tag=*/0);
      send(b, 1, rank.group(), /*tag=*/1);
      EXPECT_EQ(rank.clock()->now(), begin + 3 * kOverhead + 2 * kMessage);
    } else {
      const WorkPtr second = recv_async(b, 0, rank.group(), /*tag=*/1);
      const WorkPtr first = recv_async(a, 0, rank.group(), /*tag=*/0);
      first->wait();
      EXPECT_EQ(rank.clock()->now(), begin + 2 * kOverhead + kMessage);
      second->wait();
      EXPECT_EQ(rank.clock()->now(), begin + 3 * kOverhead + 2 * kMessage);
    }
  });
  run(2, [](Rank& rank, std::int64_t begin) {
    const at::Tensor a = message();
    const at::Tensor b = message();
    if (rank.rank() == 0) {
      const WorkPtr first = send_async(a, 1, rank.group(), /*tag=*/0);
      const WorkPtr second = send_async(b, 1, rank.group(), /*tag=*/1);
      first->wait();
      second->wait();
    } else {
      recv(b, 0, rank.group(), /*tag=*/1);
      EXPECT_EQ(rank.clock()->now(), begin + 2 * kOverhead + kMessage);
      recv(a, 0, rank.group(), /*tag=*/0);
      EXPECT_EQ(rank.clock()->now(), begin + 3 * kOverhead + 2 * kMessage);
    }
  });
}

TEST(SimulatedMessages, DoNotDelayCollectives) {
  run(2, [](Rank& rank, std::int64_t begin) {
    const at::Tensor tensor = message();
    const at::Tensor reduced = message();
    const WorkPtr transfer = rank.rank() == 0 ? send_async(tensor, 1, rank.group())
                                              : recv_async(tensor, 0, rank.group());
    all_reduce(reduced, rank.group());
    EXPECT_EQ(rank.clock()->now(), begin + 2 * kOverhead + 2 * (100 + 200));
    transfer->wait();
  });
}

// Four messages, each of which has to wait for the next on one port: reported instead of waiting
// forever.
TEST(SimulatedMessages, CircleIsReported) {
  const RankReports reports = testing::run_graded_ranks({.world_size = 4}, [](Rank& rank) {
    const at::Tensor a = message();
    const at::Tensor b = message();
    const auto post = [&](const at::Tensor& tensor, int peer) {
      return rank.rank() < 2 ? send_async(tensor, peer, rank.group())
                             : recv_async(tensor, peer, rank.group());
    };
    // 0 -> 2 before 0 -> 3 before 1 -> 3 before 1 -> 2 before 0 -> 2
    constexpr int kFirstPeer[] = {2, 3, 1, 0};
    constexpr int kSecondPeer[] = {3, 2, 0, 1};
    const WorkPtr first = post(a, kFirstPeer[rank.rank()]);
    const WorkPtr second = post(b, kSecondPeer[rank.rank()]);
    first->wait();
    second->wait();
  });
  EXPECT_NE(reports.describe().find("in a circle"), std::string::npos) << reports.describe();
}

}  // namespace
}  // namespace ddp
