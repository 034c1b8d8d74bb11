// What operators and collectives cost on the simulated cluster.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "common/checks.h"
#include "common/cluster_layers.h"
#include "ddp/cluster/cluster.h"
#include "ddp/cluster/hardware.h"
#include "ddp/cluster/operators.h"
#include "ddp/network_model.h"

namespace ddp::cluster {
namespace {

using c10d::OpType;
using ddp::testing::error_of;
using ddp::testing::expect_contains;

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
TEST(Topology, ARingOverNodesCostsWhatItsFormulaSays) {
  EXPECT_EQ(all_reduce_ns(nodes_of_8(AllReduce::kRing), 64 * kMiB, 32),
            std::llround(2 * 28 * 3'000 + 2 * 3 * 20'000 + 2 * 31.0 / 32 * 64 * kMiB * 0.08));
}

// All-gather of each rank's 2 MiB, reduce-scatter of 64 MiB.
TEST(Topology, BothHalvesAreHalfTheRing) {
  const std::int64_t whole = all_reduce_ns(nodes_of_8(AllReduce::kRing), 64 * kMiB, 32);
  EXPECT_EQ(cost_ns(nodes_of_8(AllReduce::kRing), OpType::_ALLGATHER_BASE, 2 * kMiB, 32),
            whole / 2);
  EXPECT_EQ(cost_ns(nodes_of_8(AllReduce::kRing), OpType::_REDUCE_SCATTER_BASE, 64 * kMiB, 32),
            whole / 2);
}

// By hand, 4 nodes of 8 by PCI Express: 28 steps inside and 3 between, and 31/32 of 64 MiB at 12.5 GB/s;
// of a kilobyte by LL, whose steps take 1 and 2.7 us.
TEST(Nccl, HalvesGoAroundARingOnce) {
  const Topology nodes = nodes_of_8(AllReduce::kNccl);
  const auto gather = [&](std::int64_t part) {
    return cost_ns(nodes, OpType::_ALLGATHER_BASE, part, 32);
  };
  EXPECT_NEAR(gather(2 * kMiB), 8'400 + 28 * 5'700 + 3 * 14'000 + 31 * 2.0 * kMiB / 12.5, 2);
  EXPECT_NEAR(gather(32), 6'600 + 28 * 1'000 + 3 * 2'700 + 31 * 32 / 6.25, 2);
  EXPECT_EQ(cost_ns(nodes, OpType::_REDUCE_SCATTER_BASE, 64 * kMiB, 32), gather(2 * kMiB));
  EXPECT_EQ(cost_ns(nodes, OpType::_ALLGATHER_BASE, kMiB, 1), 0);
}

// By hand, from the tables of src/graph/tuning.cc: 2 GPUs by PCI Express at 20 GB/s.
TEST(Nccl, TwoRanksGoAroundARing) {
  Topology pair{.gpus_per_node = 2, .inside = {.beta_ns_per_byte = 0.05}};
  const NcclChoice small = nccl_choice(pair, 1000, 2), large = nccl_choice(pair, 1000 * kMiB, 2);
  EXPECT_EQ(small.algorithm + " " + small.protocol, "ring LL");
  EXPECT_NEAR(small.ns, 6'600 + 2 * 1'000 + 1000 / 10.0, 1);
  EXPECT_EQ(large.algorithm + " " + large.protocol, "ring Simple");
  EXPECT_NEAR(large.ns, 8'400 + 2 * 5'700 + 1000.0 * kMiB / 20, 1);
  pair.algorithm = AllReduce::kNccl;
  pair.overhead_ns = 1'000'000;
  EXPECT_EQ(all_reduce_ns(pair, 1000 * kMiB, 2), std::llround(large.ns) + 1'000'000);
  EXPECT_EQ(all_reduce_ns(pair, kMiB, 1), 0);
}

// 2 times (7 steps of 1.25 us by NVLink, and 9 of 8.5 us over the network), and 14 us.
TEST(Nccl, ManyNodesTakeATreeWhoseLatencyGrowsWithTheLogarithm) {
  Topology nodes{.gpus_per_node = 8,
                 .inside = {.beta_ns_per_byte = 0.01},
                 .between = {.beta_ns_per_byte = 0.02},
                 .nccl = {.nvlink = true}};
  const NcclChoice million = nccl_choice(nodes, kMiB, 4096);
  EXPECT_EQ(million.algorithm + " " + million.protocol, "tree LL128");
  EXPECT_NEAR(million.ns,
              1e3 * (14 + 2 * (7 * 1.25 + 9 * 8.5)) + kMiB / (50 * 0.92 * 120 / 128 / 2 * 0.6), 1);
  EXPECT_LT(nccl_choice(nodes, kMiB, 512).ns, 2 * nccl_choice(nodes, kMiB, 64).ns);
  EXPECT_EQ(nccl_choice(nodes, 1000 * kMiB, 64).algorithm, "ring");
}

TEST(Nccl, SwitchesOfHopperAddUp) {
  Topology node{.gpus_per_node = 8,
                .inside = {.beta_ns_per_byte = 0.0025},
                .nccl = {.generation = NcclMachine::kHopper, .nvlink = true, .nvswitch = true}};
  EXPECT_EQ(nccl_choice(node, 1000 * kMiB, 8).algorithm, "NVLS");
  // 9/8 of the tensor in either direction, at 85 % of 400 GB/s; a ring would take 14/8 of it.
  EXPECT_NEAR(nccl_choice(node, 1000 * kMiB, 8).ns, 25e3 + 1000.0 * kMiB * 9 / 8 / 340, 1);
  EXPECT_EQ(nccl_choice(node, 1000 * kMiB, 2).algorithm, "ring");
  node.nccl.nvswitch = false;
  EXPECT_EQ(nccl_choice(node, 1000 * kMiB, 8).algorithm, "ring");
}

TEST(Topology, WhatCannotBeIsRefused) {
  EXPECT_EQ(error_of<c10::ValueError>([] { check(Topology{.gpus_per_node = 0}); }),
            "a node has 0 GPUs, but needs at least one");
  ddp::testing::expect_error("the link between nodes has alpha = -1 ns",
                             [] { check(Topology{.between = {.alpha_ns = -1}}); });
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
  expect_contains(error_of<c10::ValueError>([&] { check(bad); }), "no operator beats the peak");
  bad = good;
  bad.launch_ns = -1;
  expect_contains(error_of<c10::ValueError>([&] { check(bad); }), "launch_ns = -1");
}

constexpr std::int64_t kWidth = 100;

at::Tensor tensor() { return at::empty({kWidth}, kMeta); }

// "name bytes; " of each operator that moved data.
template <typename Body>
std::string moved_by(const Body& body) {
  std::ostringstream told;
  const OperatorWatch watch([&](const DataMovement& movement) {
    told << movement.name << " " << movement.bytes << "; ";
  });
  body();
  return told.str();
}

CHILD_TEST(OperatorWatch, CountsWhatIsReadAndWritten) {
  const at::Tensor a = tensor(), b = tensor();
  const std::vector<std::pair<std::string, std::string>> expected = {
      {moved_by([&] { a.copy_(b); }), "aten::copy_ 800; "},
      {moved_by([&] { a.zero_(); }), "aten::zero_ 400; "},
      {moved_by([&] { a.fill_(1); }), "aten::fill_ 400; "},
      {moved_by([&] { a.div_(8); }), "aten::div_ 800; "},
      {moved_by([&] { a.add_(b); }), "aten::add_ 1200; "},
      {moved_by([&] {
         at::cat({a, b});
       }),
       "aten::cat 1600; "},
      {moved_by([&] { a + b; }), "aten::add 1200; "},
      {moved_by([&] { a.clone(); }), "aten::clone 800; "},
      {moved_by([&] { at::zeros({kWidth}, kMeta); }), "aten::zeros 400; "},
      {moved_by([&] { at::zeros_like(a); }), "aten::zeros_like 400; "},
      {moved_by([&] { at::mul_out(const_cast<at::Tensor&>(a), b, b); }), "aten::mul 1200; "},
      {moved_by([&] {
         at::_foreach_div_({a, b}, 2);
       }),
       "aten::_foreach_div_ 1600; "},
      {moved_by([&] { a.narrow(0, 10, 20).copy_(b.narrow(0, 0, 20)); }), "aten::copy_ 160; "},
  };
  for (const auto& [told, wanted] : expected) {
    EXPECT_EQ(told, wanted);
  }
}

CHILD_TEST(OperatorWatch, ViewsAndAllocationsAreFree) {
  const at::Tensor a = tensor();
  EXPECT_EQ(moved_by([&] {
              a.view({10, 10}).t().narrow(0, 0, 5);
              a.detach();
              a.reshape({-1});
              a.contiguous();
              a.view_as(a).select(0, 1).unsqueeze(0).expand({7});
              at::empty({5}, kMeta);
              at::empty_like(a);
              a.new_empty({3});
            }),
            "");
  EXPECT_EQ(moved_by([&] { at::zeros({5}).add_(1); }), "") << "computed by the host";
}

// One that is made of others is one; what only stands for others is these.
CHILD_TEST(OperatorWatch, CompositesCountOnce) {
  const at::Tensor strided = at::empty({10, 10}, kMeta).t();
  EXPECT_EQ(moved_by([&] { strided.contiguous(); }), "aten::clone 800; ");
  EXPECT_EQ(moved_by([&] { strided.reshape({-1}); }), "aten::clone 800; ");
  const at::Tensor needs_gradient = tensor().set_requires_grad(true);
  EXPECT_EQ(moved_by([&] { needs_gradient * 2; }), "aten::mul 800; ");
}

CHILD_TEST(OperatorWatch, SeesWhatAutogradCalls) {
  const at::Tensor weight = tensor().set_requires_grad(true);
  const at::Tensor product = weight * 2;
  EXPECT_EQ(moved_by([&] { product.backward(at::empty_like(product)); }), "aten::mul 800; ");
  weight.mutable_grad() = tensor();
  EXPECT_EQ(moved_by([&] {
              (weight.view({10, 10})).backward(at::empty({10, 10}, kMeta));
            }),
            "aten::add_ 1200; ")
      << "added to the gradient that is there";
}

CHILD_TEST(OperatorWatch, OneAtATime) {
  EXPECT_EQ(moved_by([] {
              EXPECT_THROW(OperatorWatch([](const DataMovement&) {}), c10::Error);
              tensor().zero_();
            }),
            "aten::zero_ 400; ");
}

template <typename Body>
std::string refusal(const Body& body) {
  Cluster cluster(bare_network(2, {}));
  return ddp::testing::error_of([&] { cluster.run(body); });
}

CHILD_TEST(OperatorWatch, ValuesAreRefusedByOperatorAndLine) {
  const auto expect = [](const std::string& text, const std::string& begin) {
    EXPECT_TRUE(text.starts_with(begin)) << text;
    expect_contains(text, "on the simulated cluster tensors have shapes and no values");
    expect_contains(text, "(tests/common/cluster_costs_test.cpp:");
  };
  expect(refusal([] { at::zeros({1}, kMeta).item<float>(); }), "aten::_local_scalar_dense");
  expect(refusal([] { at::zeros({1}, kMeta).data_ptr<float>(); }), "data_ptr()");
  expect(refusal([] { at::zeros({1}, kMeta).const_data_ptr<float>(); }), "data_ptr()");
  expect(refusal([] { at::zeros({1}, kMeta).data_ptr(); }), "data_ptr()");
  expect(refusal([] { at::is_nonzero(at::zeros({1}, kMeta)); }), "aten::_local_scalar_dense");
  expect(refusal([] { std::ostringstream() << at::zeros({1}, kMeta); }), "aten::");
  expect(refusal([] { at::zeros({1}, kMeta).cpu(); }), "aten::_to_copy");
  expect(refusal([] {
           at::index_select(at::zeros({4}, kMeta), 0, at::zeros({1}, kMeta.dtype(at::kLong)));
         }),
         "aten::index_select");
}

}  // namespace
}  // namespace ddp::cluster
