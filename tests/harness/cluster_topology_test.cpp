// What collectives cost on a topology, by closed forms.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ddp/cluster/device.h"
#include "ddp/cluster/topology.h"
#include "ddp/network_model.h"
#include "harness/error_of.h"

namespace ddp::cluster {

namespace {

using c10d::OpType;
using ddp::testing::error_of;

constexpr std::int64_t kMiB = 1 << 20;
constexpr Link kFast{.alpha_ns = 3'000, .beta_ns_per_byte = 0.01};
constexpr Link kSlow{.alpha_ns = 20'000, .beta_ns_per_byte = 0.08};

Topology nodes_of_8(AllReduce algorithm) {
  return {.gpus_per_node = 8, .inside = kFast, .between = kSlow, .algorithm = algorithm};
}

TEST(Topology, ARingOnOneKindOfLinkIsTheSimulatedNetworks) {
  for (const std::int64_t ranks : {1, 2, 3, 8, 64, 4096}) {
    const Topology one_node{.gpus_per_node = ranks, .inside = kSlow, .algorithm = AllReduce::kRing};
    const Topology many{.gpus_per_node = 1, .between = kSlow, .algorithm = AllReduce::kRing};
    for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{4}, 999 * kMiB}) {
      for (const OpType operation : {OpType::ALLREDUCE, OpType::REDUCE_SCATTER, OpType::ALLGATHER,
                                     OpType::BROADCAST, OpType::BARRIER, OpType::SEND}) {
        const std::int64_t expected =
            ddp::cost_ns({.alpha_ns = kSlow.alpha_ns, .beta_ns_per_byte = kSlow.beta_ns_per_byte},
                         operation, bytes, static_cast<int>(ranks));
        EXPECT_EQ(cost_ns(many, operation, bytes, ranks), ranks == 1 && operation == OpType::SEND
                                                              ? 0  // a single rank uses no link
                                                              : expected)
            << c10d::opTypeToString(operation);
        EXPECT_EQ(cost_ns(one_node, operation, bytes, ranks),
                  cost_ns(many, operation, bytes, ranks));
      }
    }
  }
}

// 4 nodes of 8, 64 MiB.
TEST(Topology, AlgorithmsCostWhatTheirFormulasSay) {
  const double bytes = 64.0 * kMiB;
  const auto took = [&](AllReduce algorithm) {
    return all_reduce_ns(nodes_of_8(algorithm), 64 * kMiB, 32);
  };
  EXPECT_EQ(took(AllReduce::kRing),
            std::llround(2 * 28 * 3'000 + 2 * 3 * 20'000 + 2 * 31.0 / 32 * bytes * 0.08));
  EXPECT_EQ(took(AllReduce::kTree),
            std::llround(2 * 7 * 3'000 + 2 * 2 * 20'000 + 2 * bytes * 0.08));
  EXPECT_EQ(took(AllReduce::kHierarchical),
            std::llround(2 * 7 * 3'000 + 2 * 7.0 / 8 * bytes * 0.01 + 2 * 3 * 20'000 +
                         2 * 3.0 / 4 * bytes * 0.08));
}

TEST(Topology, TheBestIsTheFastestForEachSize) {
  for (const std::int64_t ranks : {1, 2, 8, 12, 32, 4096}) {
    for (const std::int64_t bytes : {std::int64_t{4}, kMiB, 1000 * kMiB}) {
      std::int64_t fastest = all_reduce_ns(nodes_of_8(AllReduce::kRing), bytes, ranks);
      fastest = std::min(fastest, all_reduce_ns(nodes_of_8(AllReduce::kTree), bytes, ranks));
      if (ranks < 8 || ranks % 8 == 0) {
        fastest =
            std::min(fastest, all_reduce_ns(nodes_of_8(AllReduce::kHierarchical), bytes, ranks));
      }
      EXPECT_EQ(all_reduce_ns(nodes_of_8(AllReduce::kBest), bytes, ranks), fastest);
    }
  }
  // A tree for little data on many nodes, a hierarchy for much.
  EXPECT_EQ(all_reduce_ns(nodes_of_8(AllReduce::kBest), 4, 4096),
            all_reduce_ns(nodes_of_8(AllReduce::kTree), 4, 4096));
  EXPECT_EQ(all_reduce_ns(nodes_of_8(AllReduce::kBest), 1000 * kMiB, 32),
            all_reduce_ns(nodes_of_8(AllReduce::kHierarchical), 1000 * kMiB, 32));
}

TEST(Topology, WhatCannotBeIsRefused) {
  EXPECT_NE(error_of<c10::ValueError>([] {
              all_reduce_ns(nodes_of_8(AllReduce::kHierarchical), 4, 12);
            }).find("needs as many ranks on each node"),
            std::string::npos);
  EXPECT_EQ(error_of<c10::ValueError>([] { check(Topology{.gpus_per_node = 0}); }),
            "a node has 0 GPUs, but needs at least one");
  EXPECT_NE(error_of<c10::ValueError>([] {
              check(Topology{.between = {.alpha_ns = -1}});
            }).find("the link between nodes has alpha = -1 ns"),
            std::string::npos);
}

TEST(Device, AnOperatorTakesTheLongerOfArithmeticAndMemory) {
  const Device device{
      .name = "d", .flops_per_second = 1e12, .bytes_per_second = 1e9, .efficiency = 0.5};
  EXPECT_EQ(operator_ns(device, 1e6, 0), 2'000);
  EXPECT_EQ(operator_ns(device, 1e6, 1e6), 1'000'000);
  EXPECT_EQ(operator_ns(device, 0, 1), 1);
}

TEST(Device, WhatCannotBeIsRefused) {
  const Device good{.name = "G1", .flops_per_second = 1, .bytes_per_second = 1};
  EXPECT_NO_THROW(check(good));
  Device bad = good;
  bad.bytes_per_second = 0;
  EXPECT_EQ(error_of<c10::ValueError>([&] { check(bad); }),
            "the device \"G1\" has bytes_per_second = 0, but needs a number above 0");
  bad = good;
  bad.efficiency = 1.5;
  EXPECT_NE(error_of<c10::ValueError>([&] { check(bad); }).find("no operator beats the peak"),
            std::string::npos);
  bad = good;
  bad.launch_ns = -1;
  EXPECT_NE(error_of<c10::ValueError>([&] { check(bad); }).find("launch_ns = -1"),
            std::string::npos);
}

}  // namespace

}  // namespace ddp::cluster
