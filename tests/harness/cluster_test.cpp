// The simulated cluster: what operators, collectives and waits cost, by formulas.
#include "ddp/cluster/cluster.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ddp/cluster/timed_model.h"
#include "ddp/gradient_hooks.h"
#include "support/cluster_options.h"
#include "support/ranks.h"

namespace ddp::cluster {

namespace {

using ddp::testing::in_child;

constexpr std::int64_t kLaunch = 7;
const auto kMeta = at::TensorOptions(at::kMeta).dtype(at::kFloat);

ClusterOptions two_ranks() { return ddp::testing::flat_cluster(2, {1'000, 2.0}, kLaunch); }

TEST(Cluster, ComputingTakesItsTimeAndNothingElse) {
  in_child([] {
    Cluster cluster(two_ranks());
    const at::Tensor weight = at::empty({50, 5}, kMeta).set_requires_grad(true);
    TimedModel model(cluster, {{{weight}, 100, 200, "fc"}});
    const StepTimes times = model.step();
    EXPECT_EQ(times.forward_ns, 100 + kLaunch);
    EXPECT_EQ(times.backward_ns, 200);
    EXPECT_EQ(times.finish_ns, 0);
    ASSERT_EQ(cluster.spans().size(), 2);
    EXPECT_EQ(cluster.spans()[0].name, "forward fc");
    EXPECT_EQ(cluster.spans()[1].name, "backward fc");
  });
}

}  // namespace

}  // namespace ddp::cluster
