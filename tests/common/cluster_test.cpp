// The simulated cluster: what operations and waits of all kinds take, and what it refuses.
#include "ddp/cluster/cluster.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/checks.h"
#include "common/cluster_layers.h"
#include "common/ranks.h"
#include "ddp/cluster/timed_model.h"
#include "ddp/libtorch_versions.h"

namespace ddp::cluster {

namespace {

using ddp::testing::error_of;
using ddp::testing::expect_contains;

CHILD_TEST(Cluster, DataMovementTakesTheDevicesTime) {
  ClusterOptions options = bare_network(2, kLink);
  options.device.bytes_per_second = 1e9;
  Cluster cluster(options);
  TimedModel model(cluster, layers());
  const auto average = [&] {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : model.parameters()) {
      all_reduce(parameter.grad(), cluster.group());
      parameter.grad().div_(2);
    }
  };
  EXPECT_EQ(model.step({.finish = average}).finish_ns, kLayers * (cost_of(kBytes) + 2 * kBytes));
}

// It runs when the collective has ended, beside what this thread does meanwhile.
CHILD_TEST(Cluster, ACallbackOfAFutureHoldsUpNobodyUntilItsFutureIsWaitedFor) {
  Cluster cluster(bare_network(2, kLink));
  bool called = false;
  EXPECT_EQ(cluster.time([&] {
    const auto future =
        all_reduce_async(at::empty({kElements}, kMeta), cluster.group())
            ->getFuture()
            ->then([&](c10::ivalue::Future&) { return called = true; }, c10::BoolType::get());
    cluster.compute(10, "meanwhile");
    EXPECT_FALSE(called);
    EXPECT_EQ(cluster.clocks().now(), 10);
    future->wait();
    EXPECT_TRUE(called);
  }),
            cost_of(kBytes));
}

CHILD_TEST(Cluster, FuturesAreCompleteOnceTheirCollectiveIsWaitedFor) {
  Cluster cluster(bare_network(2, kLink));
  cluster.run([&] {
    const at::Tensor tensor = at::empty({kElements}, kMeta);
    const WorkPtr first = all_reduce_async(tensor, cluster.group());
    const WorkPtr second = all_reduce_async(tensor, cluster.group());
    const auto later = second->getFuture(), earlier = first->getFuture();
    first->wait();
    EXPECT_TRUE(earlier->completed());
    EXPECT_FALSE(later->completed());
    EXPECT_EQ(earlier->value().toTensorVector().at(0).numel(), kElements);
    second->wait();
    EXPECT_TRUE(second->getFuture()->completed());
  });
}

// A thread that has nothing to do until another one has waited has waited itself.
CHILD_TEST(Cluster, AWaitOfAnotherThreadIsOneWhereItIsWaitedFor) {
  Cluster cluster(bare_network(2, kLink));
  EXPECT_EQ(cluster.time([&] {
    const WorkPtr work = all_reduce_async(at::empty({kElements}, kMeta), cluster.group());
    std::thread other([&] { work->wait(); });
    cluster.compute(10, "meanwhile");
    EXPECT_EQ(cluster.clocks().now(), 10);
    other.join();
  }),
            cost_of(kBytes));
}

CHILD_TEST(Cluster, OtherThreadsDoNotLaunch) {
  Cluster cluster(bare_network(2, kLink));
  std::string text;
  std::thread([&] {
    text = error_of([&] { all_reduce(at::empty({kElements}, kMeta), cluster.group()); });
  }).join();
  expect_contains(text, "follows the thread that trains, and not another's all-reduce");
}

CHILD_TEST(Cluster, EveryOperationCostsWhatTheTopologySays) {
  Cluster cluster(bare_network(8, kLink));
  const auto cost = [&](c10d::OpType type, std::int64_t bytes) {
    return cost_ns(cluster.options().topology, type, bytes, 8);
  };
  const ProcessGroupPtr& group = cluster.group();
  const at::Tensor tensor = at::empty({kElements}, kMeta);
  EXPECT_EQ(cluster.time([&] { all_reduce(tensor, group); }),
            cost(c10d::OpType::ALLREDUCE, kBytes));
  EXPECT_EQ(cluster.time([&] { broadcast(tensor, group); }), cost(c10d::OpType::BROADCAST, kBytes));
  EXPECT_EQ(cluster.time([&] { barrier(group); }), cost(c10d::OpType::BARRIER, 0));
  EXPECT_EQ(cluster.time([&] { EXPECT_EQ(all_gather(tensor, group).size(0), 8); }),
            cost(c10d::OpType::ALLGATHER, kBytes));
  EXPECT_EQ(cluster.time([&] {
    at::Tensor input = at::empty({8 * kElements}, kMeta), output = tensor;
    ((*group).*kReduceScatterSingle)(output, input, {})->wait();
  }),
            cost(c10d::OpType::REDUCE_SCATTER, 8 * kBytes));
  EXPECT_EQ(cluster.time([&] {
    const WorkPtr received = recv_async(tensor, 7, group);
    send(tensor, 1, group);
    received->wait();
  }),
            cost(c10d::OpType::SEND, kBytes));
}

CHILD_TEST(Cluster, WhatCannotBeIsRefused) {
  EXPECT_EQ(error_of([] { Cluster(bare_network(0, kLink)); }),
            "a cluster needs at least one rank, not 0");
  ClusterOptions options = bare_network(2, kLink);
  options.slowdown_beside_communication = 0.5;
  expect_contains(error_of([&] { Cluster cluster(options); }), "give 1 or more");
  Cluster cluster(bare_network(2, kLink));
  ddp::testing::expect_error("cannot do an all-reduce of a tensor on cpu",
                             [&] { all_reduce(at::ones({1}), cluster.group()); });
  const auto layer = [&](const TimedLayer& layer) {
    return error_of([&] { TimedModel(cluster, {layer}); });
  };
  expect_contains(layer({.forward_ns = -1, .name = "fc"}), "the layer \"fc\" takes -1 ns forward");
  expect_contains(layer({.parameters = {at::ones({1})}, .name = "fc"}),
                  "a parameter of the layer \"fc\" is no leaf on the meta device");
}

CHILD_TEST(Cluster, AnErrorOfTheCodeSaysWhere) {
  Cluster cluster(bare_network(4, kLink));
  const std::string text =
      error_of([&] { cluster.run([&] { send(at::empty({1}, kMeta), 1, cluster.group()); }); });
  expect_contains(text, "nobody receives it");
  expect_contains(text, ".cpp:");
  EXPECT_EQ(error_of([&] {
              cluster.run([] { TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 02"); });
            }),
            "TODO(student): 02")
      << "a stub says what it has to say";
}

}  // namespace

}  // namespace ddp::cluster
