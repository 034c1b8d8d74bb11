// Steps on the simulated cluster: what they take, by formulas, and how much longer with a mistake.
#include "ddp/cluster/timed_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/checks.h"
#include "common/cluster_layers.h"
#include "ddp/cluster/cluster.h"
#include "ddp/gradient_hooks.h"

namespace ddp::cluster {

namespace {

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

CHILD_TEST(TimedModel, ComputingTakesItsTimeAndNothingElse) {
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
}

CHILD_TEST(TimedModel, GradientsComeInTheReverseOrderOfTheParameters) {
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
    hooks.push_back(on_gradient_ready(parameter, [&](const at::Tensor& p) { came.push_back(p); }));
  }
  model.step();
  ASSERT_EQ(came.size(), 27);
  for (std::size_t i = 0; i < came.size(); ++i) {
    EXPECT_TRUE(came[i].is_same(model.parameters()[26 - i])) << i;
  }
}

CHILD_TEST(Cluster, OverlappedAllReducesAreAChain) {
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
}

// However it waits: the device, the host, or what it does next has to.
CHILD_TEST(Cluster, AWaitInAHookTakesTheWholeCommunication) {
  for (const auto mistake : {HookedDdp::Mistake::kWaitsInHook, HookedDdp::Mistake::kPollsInHook,
                             HookedDdp::Mistake::kWaitsByFuture}) {
    for (const bool blocks : {false, true}) {
      ClusterOptions options = bare_network(2, kLink);
      options.wait_blocks_host = blocks;
      EXPECT_EQ(step_with(options, mistake).total_ns,
                kLayers * (kForward + kBackward + cost_of(kBytes)));
    }
  }
}

CHILD_TEST(Cluster, LaunchingInForwardOrderHidesNothing) {
  EXPECT_EQ(step_with(bare_network(2, kLink), HookedDdp::Mistake::kForwardOrder).total_ns,
            kLayers * (kForward + kBackward + cost_of(kBytes)));
}

CHILD_TEST(Cluster, CommunicationSlowsComputingBesideIt) {
  ClusterOptions options = bare_network(2, kLink);
  options.slowdown_beside_communication = 1.25;
  // Beside each but the last all-reduce, cost_of() ns of computing do what takes 4/5 of it alone.
  EXPECT_EQ(
      step_with(options, HookedDdp::Mistake::kNone).total_ns,
      kLayers * (kForward + kBackward) + cost_of(kBytes) + (kLayers - 1) * cost_of(kBytes) / 5);
}

CHILD_TEST(Cluster, LaunchesCostTheHost) {
  constexpr std::int64_t kLaunch = 10'000;  // longer than any layer computes
  const StepTimes times = step_with(bare_network(2, kLink, kLaunch), HookedDdp::Mistake::kNone);
  EXPECT_EQ(times.forward_ns, kLayers * kLaunch + kForward);
  EXPECT_EQ(times.total_ns, 3 * kLayers * kLaunch + cost_of(kBytes));
}

}  // namespace

}  // namespace ddp::cluster
