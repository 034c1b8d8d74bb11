// The simulated cluster: what a step takes, by formulas, and how much slower it is with a mistake.
#include "ddp/cluster/cluster.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "ddp/cluster/timed_model.h"
#include "ddp/gradient_hooks.h"
#include "support/ranks.h"

namespace ddp::cluster {

namespace {

using ddp::testing::in_child;

constexpr Link kLink{.alpha_ns = 100, .beta_ns_per_byte = 0.5};
constexpr std::int64_t kLayers = 5, kElements = 200, kBytes = 4 * kElements;
constexpr std::int64_t kForward = 1'000, kBackward = 3'000;  // of a layer
const auto kMeta = at::TensorOptions(at::kMeta).dtype(at::kFloat);

std::vector<TimedLayer> layers() {
  std::vector<TimedLayer> all;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    all.push_back({.parameters = {make_parameter({kElements})},
                   .forward_ns = kForward,
                   .backward_ns = kBackward});
  }
  return all;
}

// Of an all-reduce between two ranks.
std::int64_t cost_of(std::int64_t bytes) { return 2 * 100 + bytes / 2; }

// Stage 02 in short, or with a mistake.
class HookedDdp : public GradientSynchronizer {
 public:
  enum class Mistake { kNone, kWaitsInHook, kWaitsByFuture, kPollsInHook, kForwardOrder };

  HookedDdp(const std::vector<at::Tensor>& parameters, ProcessGroupPtr group, Mistake mistake)
      : parameters_(parameters), group_(std::move(group)), mistake_(mistake) {
    for (const at::Tensor& parameter : parameters_) {
      hooks_.push_back(on_gradient_ready(parameter, [this](const at::Tensor& p) { ready(p); }));
    }
  }

  void finish() override {
    for (const WorkPtr& work : works_) {
      work->wait();
    }
    works_.clear();
  }

 private:
  void ready(const at::Tensor& parameter) {
    if (mistake_ == Mistake::kForwardOrder) {  // the first layer's bucket goes first
      if (parameter.is_same(parameters_.front())) {
        for (const at::Tensor& each : parameters_) {
          launch(each);
        }
      }
      return;
    }
    launch(parameter);
    if (mistake_ == Mistake::kWaitsInHook) {
      works_.back()->wait();
    } else if (mistake_ == Mistake::kPollsInHook) {
      works_.back()->isCompleted();
    } else if (mistake_ == Mistake::kWaitsByFuture) {
      works_.back()->getFuture()->wait();
    }
  }

  void launch(const at::Tensor& parameter) {
    works_.push_back(all_reduce_async(parameter.grad(), group_));
  }

  std::vector<at::Tensor> parameters_;
  ProcessGroupPtr group_;
  Mistake mistake_;
  std::vector<WorkPtr> works_;
  std::vector<GradientHook> hooks_;
};

StepTimes step_with(const ClusterOptions& options, HookedDdp::Mistake mistake) {
  Cluster cluster(options);
  TimedModel model(cluster, layers());
  HookedDdp synchronizer(model.parameters(), cluster.group(), mistake);
  model.step(synchronizer);
  return model.step(synchronizer);
}

TEST(TimedModel, ComputingTakesItsTimeAndNothingElse) {
  in_child([] {
    Cluster cluster(bare_network(2, kLink, /*launch_ns=*/7));
    TimedModel model(cluster, {{.forward_ns = 50, .backward_ns = 60, .name = "without parameters"},
                               {.parameters = {make_parameter({50, 5}), make_parameter({5})},
                                .forward_ns = 100,
                                .backward_ns = 200,
                                .name = "fc"}});
    const StepTimes times = model.step();
    EXPECT_EQ(times.forward_ns, 7 + 50 + 100);
    EXPECT_EQ(times.backward_ns, 200 + 60);
    EXPECT_EQ(times.finish_ns, 0);
    EXPECT_EQ(times.total_ns, times.forward_ns + times.backward_ns);
    EXPECT_EQ(times.collectives, 0);
    std::string names;
    for (const Span& span : cluster.spans()) {
      names += span.name + "; ";
    }
    EXPECT_EQ(names,
              "forward without parameters; forward fc; backward fc; backward without parameters; ");
  });
}

TEST(TimedModel, GradientsComeInTheReverseOrderOfTheParameters) {
  in_child([] {
    Cluster cluster(bare_network(2, kLink));
    std::vector<TimedLayer> all;
    for (int layer = 0; layer < 3; ++layer) {
      all.push_back({});
      for (int i = 0; i < 9; ++i) {
        all.back().parameters.push_back(make_parameter({i + 1}));
      }
    }
    TimedModel model(cluster, all);
    std::vector<at::Tensor> came;
    std::vector<GradientHook> hooks;
    for (const at::Tensor& parameter : model.parameters()) {
      hooks.push_back(
          on_gradient_ready(parameter, [&](const at::Tensor& p) { came.push_back(p); }));
    }
    model.step();
    ASSERT_EQ(came.size(), 27);
    for (std::size_t i = 0; i < came.size(); ++i) {
      EXPECT_TRUE(came[i].is_same(model.parameters()[26 - i])) << i;
    }
  });
}

TEST(Cluster, OverlappedAllReducesAreAChain) {
  in_child([] {
    const StepTimes times = step_with(bare_network(2, kLink), HookedDdp::Mistake::kNone);
    EXPECT_EQ(times.forward_ns, kLayers * kForward);
    EXPECT_EQ(times.backward_ns, kLayers * kBackward);
    EXPECT_EQ(times.finish_ns, cost_of(kBytes)) << "only the last is not hidden";
    EXPECT_EQ(times.waiting_ns, cost_of(kBytes));
    EXPECT_EQ(times.collectives, kLayers);
    EXPECT_EQ(times.communication_ns, kLayers * cost_of(kBytes));
    EXPECT_EQ(times.total_ns, times.forward_ns + times.backward_ns + times.finish_ns);

    const Link slow{.alpha_ns = 100, .beta_ns_per_byte = 50};
    EXPECT_EQ(step_with(bare_network(2, slow), HookedDdp::Mistake::kNone).total_ns,
              kLayers * kForward + kBackward + kLayers * (200 + 50 * kBytes));
  });
}

// However it waits: the device, the host, or what it does next has to.
TEST(Cluster, AWaitInAHookTakesTheWholeCommunication) {
  in_child([] {
    for (const auto mistake : {HookedDdp::Mistake::kWaitsInHook, HookedDdp::Mistake::kPollsInHook,
                               HookedDdp::Mistake::kWaitsByFuture}) {
      for (const bool blocks : {false, true}) {
        ClusterOptions options = bare_network(2, kLink);
        options.wait_blocks_host = blocks;
        EXPECT_EQ(step_with(options, mistake).total_ns,
                  kLayers * (kForward + kBackward + cost_of(kBytes)));
      }
    }
  });
}

TEST(Cluster, LaunchingInForwardOrderHidesNothing) {
  in_child([] {
    EXPECT_EQ(step_with(bare_network(2, kLink), HookedDdp::Mistake::kForwardOrder).total_ns,
              kLayers * (kForward + kBackward + cost_of(kBytes)));
  });
}

TEST(Cluster, CommunicationSlowsComputingBesideIt) {
  in_child([] {
    ClusterOptions options = bare_network(2, kLink);
    options.slowdown_beside_communication = 1.25;
    // Beside each but the last all-reduce, cost_of() ns of computing do what takes 4/5 of it alone.
    EXPECT_EQ(
        step_with(options, HookedDdp::Mistake::kNone).total_ns,
        kLayers * (kForward + kBackward) + cost_of(kBytes) + (kLayers - 1) * cost_of(kBytes) / 5);
  });
}

TEST(Cluster, LaunchesCostTheHost) {
  in_child([] {
    constexpr std::int64_t kLaunch = 10'000;  // longer than any layer computes
    const StepTimes times = step_with(bare_network(2, kLink, kLaunch), HookedDdp::Mistake::kNone);
    EXPECT_EQ(times.forward_ns, kLayers * kLaunch + kForward);
    EXPECT_EQ(times.total_ns, 3 * kLayers * kLaunch + cost_of(kBytes));
  });
}

TEST(Cluster, DataMovementTakesTheDevicesTime) {
  in_child([] {
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
  });
}

// It runs when the collective has ended, beside what this thread does meanwhile.
TEST(Cluster, ACallbackOfAFutureHoldsUpNobodyUntilItsFutureIsWaitedFor) {
  in_child([] {
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
  });
}

TEST(Cluster, FuturesAreCompleteOnceTheirCollectiveIsWaitedFor) {
  in_child([] {
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
  });
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

// Who has nothing to do until another thread has waited, has waited itself.
TEST(Cluster, AWaitOfAnotherThreadIsOneWhereItIsWaitedFor) {
  in_child([] {
    Cluster cluster(bare_network(2, kLink));
    EXPECT_EQ(cluster.time([&] {
      const WorkPtr work = all_reduce_async(at::empty({kElements}, kMeta), cluster.group());
      std::thread other([&] { work->wait(); });
      cluster.compute(10, "meanwhile");
      EXPECT_EQ(cluster.clocks().now(), 10);
      other.join();
    }),
              cost_of(kBytes));
  });
}

TEST(Cluster, OtherThreadsDoNotLaunch) {
  in_child([] {
    Cluster cluster(bare_network(2, kLink));
    std::string text;
    std::thread([&] {
      text = refusal([&] { all_reduce(at::empty({kElements}, kMeta), cluster.group()); });
    }).join();
    EXPECT_NE(text.find("follows the thread that trains, and not another's all-reduce"),
              std::string::npos)
        << text;
  });
}

TEST(Cluster, EveryOperationCostsWhatTheTopologySays) {
  in_child([] {
    Cluster cluster(bare_network(8, kLink));
    const auto cost = [&](c10d::OpType type, std::int64_t bytes) {
      return cost_ns(cluster.options().topology, type, bytes, 8);
    };
    const ProcessGroupPtr& group = cluster.group();
    const at::Tensor tensor = at::empty({kElements}, kMeta);
    EXPECT_EQ(cluster.time([&] { all_reduce(tensor, group); }),
              cost(c10d::OpType::ALLREDUCE, kBytes));
    EXPECT_EQ(cluster.time([&] { broadcast(tensor, group); }),
              cost(c10d::OpType::BROADCAST, kBytes));
    EXPECT_EQ(cluster.time([&] { barrier(group); }), cost(c10d::OpType::BARRIER, 0));
    EXPECT_EQ(cluster.time([&] { EXPECT_EQ(all_gather(tensor, group).size(0), 8); }),
              cost(c10d::OpType::ALLGATHER, kBytes));
    EXPECT_EQ(cluster.time([&] {
      at::Tensor input = at::empty({8 * kElements}, kMeta), output = tensor;
      group->_reduce_scatter_base(output, input)->wait();
    }),
              cost(c10d::OpType::REDUCE_SCATTER, 8 * kBytes));
    EXPECT_EQ(cluster.time([&] {
      const WorkPtr received = recv_async(tensor, 7, group);
      send(tensor, 1, group);
      received->wait();
    }),
              cost(c10d::OpType::SEND, kBytes));
  });
}

TEST(Cluster, WhatCannotBeIsRefused) {
  in_child([] {
    EXPECT_EQ(refusal([] { Cluster(bare_network(0, kLink)); }),
              "a cluster needs at least one rank, not 0");
    ClusterOptions options = bare_network(2, kLink);
    options.slowdown_beside_communication = 0.5;
    EXPECT_NE(refusal([&] { Cluster cluster(options); }).find("give 1 or more"), std::string::npos);
    Cluster cluster(bare_network(2, kLink));
    EXPECT_NE(refusal([&] {
                all_reduce(at::ones({1}), cluster.group());
              }).find("cannot do an all-reduce of a tensor on cpu"),
              std::string::npos);
    const auto layer = [&](const TimedLayer& layer) {
      return refusal([&] { TimedModel(cluster, {layer}); });
    };
    EXPECT_NE(layer({.forward_ns = -1, .name = "fc"}).find("the layer \"fc\" takes -1 ns forward"),
              std::string::npos);
    EXPECT_NE(layer({.parameters = {at::ones({1})}, .name = "fc"})
                  .find("a parameter of the layer \"fc\" is no leaf on the meta device"),
              std::string::npos);
  });
}

TEST(Cluster, AnErrorOfTheCodeSaysWhere) {
  in_child([] {
    Cluster cluster(bare_network(4, kLink));
    const std::string text =
        refusal([&] { cluster.run([&] { send(at::empty({1}, kMeta), 1, cluster.group()); }); });
    EXPECT_NE(text.find("nobody receives it"), std::string::npos) << text;
    EXPECT_NE(text.find(".cpp:"), std::string::npos) << text;
    EXPECT_EQ(refusal([&] {
                cluster.run([] { TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 02"); });
              }),
              "TODO(student): 02")
        << "a stub says what it has to say";
  });
}

}  // namespace

}  // namespace ddp::cluster
