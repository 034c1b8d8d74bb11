// Virtual time: what ranks did, priced and drawn for a network.
#include "ddp/simulation/virtual_time.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ddp/collectives.h"
#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"
#include "ddp/simulation/simulated_compute.h"
#include "harness/checks.h"
#include "support/ranks.h"

namespace ddp {

namespace {

constexpr std::int64_t kLaunch = 30;
constexpr NetworkModel kVirtualNetwork{
    .alpha_ns = 1'000, .beta_ns_per_byte = 2.0, .launch_overhead_ns = kLaunch};
constexpr std::int64_t kElements = 100;
constexpr std::int64_t kLasts = 2 * (1'000 + 4 * kElements);  // 2 ranks: 2 alpha + S beta

std::int64_t cost_of(const Seen& seen, int) {
  return seen.kind == EventKind::kCompute ? seen.number : 0;
}

using Body = std::function<void(Client&, const ProcessGroupPtr&)>;

Evidence run(const Body& body) {
  return run_refereed({.hold = false}, {}, [&](Client& client, RankContext&) {
    body(client, make_group(client.shared_from_this()));
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
    const VirtualTime time(evidence, network, cost_of);
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
  const VirtualTime time(evidence, kVirtualNetwork, cost_of);
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
  const VirtualTime time(evidence, kVirtualNetwork, cost_of);
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

}  // namespace

}  // namespace ddp
