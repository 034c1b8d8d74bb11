// Virtual time: what ranks did, priced and drawn for a network.
#include "ddp/virtual_time/virtual_time.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "common/checks.h"
#include "common/ranks.h"
#include "ddp/collectives.h"
#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"
#include "ddp/timeline/simulated_compute.h"

namespace ddp {
namespace {

constexpr std::int64_t kLaunch = 30;
constexpr NetworkModel kVirtualNetwork{
    .alpha_ns = 1'000, .beta_ns_per_byte = 2.0, .launch_overhead_ns = kLaunch};
constexpr std::int64_t kElements = 100;
constexpr std::int64_t kLasts = 2 * (1'000 + 4 * kElements);  // 2 ranks: 2 alpha + S beta

const ComputeCost kCostOf = [](const Seen& seen, int) {
  return seen.kind == EventKind::kCompute ? seen.number : 0;
};

using Scenario = std::function<void(Client&, const ProcessGroupPtr&)>;

Evidence run(const Scenario& scenario) {
  return run_refereed({.hold = false}, {}, [&](Client& client, RankContext&) {
    scenario(client, make_group(client.shared_from_this()));
  });
}

at::Tensor payload() { return at::ones({kElements}); }

void expect_span(const Span& span, const std::string& name, std::int64_t begin, std::int64_t end) {
  EXPECT_EQ(span.name, name);
  EXPECT_EQ(span.begin_ns, begin) << name;
  EXPECT_EQ(span.end_ns, end) << name;
}

// Those that a rank finished within a step, relative to its beginning, in their order.
std::vector<Span> spans_in(const VirtualTime& time, int rank, int step) {
  std::vector<Span> spans;
  for (Span span : time.spans(rank)) {
    if (span.begin_ns >= time.step(step).begin && span.end_ns <= time.step(step).end) {
      for (auto instant : {&Span::begin_ns, &Span::end_ns, &Span::launched_ns}) {
        span.*instant -= time.step(step).begin;
      }
      spans.push_back(std::move(span));
    }
  }
  std::ranges::stable_sort(spans, {}, &Span::begin_ns);
  return spans;
}

// Two ranks, one layer of 100 ns, an all-reduce of 1,000 bytes after it, then a second step.
TEST(VirtualTime, FollowsFromTheEvidenceForAnyNetwork) {
  const Evidence evidence = run([](Client& client, const auto& group) {
    for (int step = 0; step < 2; ++step) {
      client.go_to({.phase = Phase::kBackward, .step = step});
      client.compute(100 * (1 + client.rank()), "layer");
      const WorkPtr work = all_reduce_async(at::zeros({250}), group);
      client.compute(50, "another layer");
      client.go_to({.phase = Phase::kFinish, .step = step});
      work->wait();
    }
  });
  for (const std::int64_t alpha : {0, 30, 1'000}) {
    const NetworkModel network{.alpha_ns = alpha, .beta_ns_per_byte = 1, .launch_overhead_ns = 7};
    const VirtualTime time(evidence, network, kCostOf);
    // Rank 1 launches at 207; 2 alpha + 1,000 bytes.
    EXPECT_EQ(time.step_ns(0), 207 + 2 * alpha + 1'000);
    EXPECT_EQ(time.step_ns(1), 207 + 2 * alpha + 1'000);
  }
}

// Compute, then communicate: rank 1 is late, and rank 0's operation begins when rank 1 arrives.
TEST(VirtualTime, DrawsAStepWithoutOverlap) {
  constexpr std::int64_t kComputes = 2'000, kLate = 500;
  const Evidence evidence = run([](Client& client, const auto& group) {
    for (int step = 0; step < 2; ++step) {
      client.go_to({.phase = Phase::kBackward, .step = step});
      client.compute(kComputes + kLate * client.rank(), "layer");
      client.go_to({.phase = Phase::kFinish, .step = step});
      all_reduce(payload(), group);
      all_reduce(payload(), group);
    }
  });
  const VirtualTime time(evidence, kVirtualNetwork, kCostOf);
  const std::int64_t first = kComputes + kLate + kLaunch;
  const std::int64_t second = first + kLasts + kLaunch;
  for (int rank = 0; rank < 2; ++rank) {
    const std::int64_t computed = kComputes + kLate * rank;
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(time.step_ns(step), second + kLasts);
      const std::vector<Span> spans = spans_in(time, rank, step);
      ASSERT_EQ(spans.size(), 7);
      const std::string all_reduce = "all-reduce of a tensor float32 [100]";
      expect_span(spans[0], "layer", 0, computed);
      expect_span(spans[1], "backward", 0, computed);
      expect_span(spans[2], "launch", computed, computed + kLaunch);
      expect_span(spans[3], "finish", computed, second + kLasts);
      expect_span(spans[4], all_reduce, first, first + kLasts);
      EXPECT_EQ(spans[4].launched_ns, computed + kLaunch);
      expect_span(spans[5], "launch", second - kLaunch, second);
      expect_span(spans[6], all_reduce, second, second + kLasts);
    }
  }
}

// Launched while computing: the second operation waits for the network, the third finds it idle.
// The last one is waited for only by its future.
TEST(VirtualTime, DrawsAStepWithOverlap) {
  const std::vector<std::int64_t> computes = {100, 200, 3 * kLasts};
  const Evidence evidence = run([&](Client& client, const auto& group) {
    client.go_to({.phase = Phase::kBackward, .step = 0});
    std::vector<WorkPtr> works;
    for (const std::int64_t ns : computes) {
      client.compute(ns, "layer");
      works.push_back(all_reduce_async(payload(), group));
    }
    client.go_to({.phase = Phase::kFinish, .step = 0});
    works[0]->wait();
    works[1]->wait();
    works[2]->getFuture()->wait();
  });
  const VirtualTime time(evidence, kVirtualNetwork, kCostOf);
  std::vector<Span> spans = spans_in(time, 0, 0);
  std::erase_if(spans, [](const Span& s) { return s.kind != SpanKind::kCommunication; });
  ASSERT_EQ(spans.size(), 3);
  const std::int64_t first = 100 + kLaunch, third = 300 + 3 * kLasts + 3 * kLaunch;
  expect_span(spans[0], spans[0].name, first, first + kLasts);
  expect_span(spans[1], spans[1].name, first + kLasts, first + 2 * kLasts);
  expect_span(spans[2], spans[2].name, third, third + kLasts);
  EXPECT_EQ(time.step_ns(0), third + kLasts);
}

CHILD_TEST(SimulatedCompute, IsTheIdentityAndTellsBothWays) {
  std::int64_t spent = 0;
  std::string told;
  const ComputeListener listener = [&](std::int64_t ns, const std::string& name) {
    spent += ns;
    told += name + "; ";
  };
  at::Tensor x = at::arange(3, at::kDouble).set_requires_grad(true);
  for (int step = 0; step < 2; ++step) {
    spent = 0;
    at::Tensor y = simulated_compute(x, listener, 10, 20, "fc");
    EXPECT_EQ(spent, 10);
    EXPECT_TRUE(at::equal(y, x));
    y.sum().backward();
    EXPECT_EQ(spent, 30) << "a leaf must not remember the hooks of earlier steps";
  }
  EXPECT_EQ(told, "forward fc; backward fc; forward fc; backward fc; ");
  simulated_compute(at::ones({2}), listener, 1, 1);
  EXPECT_EQ(spent, 31) << "no gradient, no backward";
}

// A layer has computed its backward before the gradients of its weight are there.
CHILD_TEST(SimulatedCompute, GradientsAreReadyAfterTheirLayersBackward) {
  std::string told;
  const ComputeListener listener = [&](std::int64_t, const std::string& name) {
    told += name + "; ";
  };
  at::Tensor x = at::ones({2, 2});
  std::vector<at::Tensor> weights;
  for (const std::string name : {"fc1", "fc2"}) {
    weights.push_back(at::ones({2, 2}).set_requires_grad(true));
    weights.back().register_hook([&told, name](const at::Tensor&) { told += name + "; "; });
    x = simulated_compute(at::tanh(at::mm(x, weights.back())), listener, 1, 1, name);
  }
  told.clear();
  x.sum().backward();
  EXPECT_EQ(told, "backward fc2; fc2; backward fc1; fc1; ");
}

// Messages: one outgoing and one incoming port per rank, full duplex.
constexpr NetworkModel kNetwork{.alpha_ns = 100, .beta_ns_per_byte = 2.5, .launch_overhead_ns = 7};
constexpr std::int64_t kOverhead = 7;
constexpr std::int64_t kMessage = 100 + 400;  // 160 bytes at 2.5 ns

at::Tensor message() { return at::ones({40}); }

// All ranks begin a step at once; its times are from there.
struct PricedRun {
  PricedRun(int ranks, const Scenario& scenario)
      : evidence(run_refereed({.ranks = ranks}, {},
                              [&](Client& client, RankContext&) {
                                const auto group = make_group(client.shared_from_this());
                                client.go_to({.phase = Phase::kCall, .step = 0});
                                scenario(client, group);
                                client.go_to({.phase = Phase::kSetup, .step = 0});
                              })),
        time(evidence, kNetwork, kCostOf) {
    EXPECT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  }

  // When a rank's message ended, by the order in which the messages did.
  std::int64_t end(int rank, std::size_t index) const {
    std::vector<Span> messages = time.spans(rank);
    std::erase_if(messages, [](const Span& s) { return s.kind != SpanKind::kCommunication; });
    return messages.at(index).end_ns;
  }

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
