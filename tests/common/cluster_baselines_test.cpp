// libtorch's own Reducer, and the port of PyTorch's Python DDP, on the simulated cluster.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/checks.h"
#include "common/cluster_layers.h"
#include "common/ranks.h"
#include "ddp/baselines/python_ddp_baseline.h"
#include "ddp/baselines/reducer_baseline.h"
#include "ddp/cluster/timed_model.h"

namespace ddp::cluster {

namespace {

using Buckets = std::vector<std::vector<std::size_t>>;

struct Training {
  explicit Training(const ClusterOptions& options = bare_network(2, kLink))
      : cluster(options), model(cluster, layers()) {}

  Cluster cluster;
  TimedModel model;
};

StepTimes reducers_step(Training& training, bool as_view, Buckets& buckets) {
  ReducerBaseline baseline(training.model.parameters(), {}, training.cluster.group(),
                           {.first_bucket_bytes = kBytes,
                            .cap_bytes = 2 * kBytes,
                            .gradient_as_bucket_view = as_view,
                            .rebuilt_from_the_start = true});
  StepTimes times;
  for (int step = 0; step < 3; ++step) {
    times = training.model.step({.before_forward = [&] { baseline.before_forward(); },
                                 .before_backward = [&] { baseline.before_backward(); },
                                 .finish = {}});
  }
  buckets = baseline.buckets();
  return times;
}

// Gradients of layers 4, 3 and 2, 1 and 0: what the Reducer waits for at the end of backward is the
// last bucket.
CHILD_TEST(ReducerOnCluster, KeepsTheBucketsThatItWouldRebuild) {
  for (const bool as_view : {false, true}) {
    Training training;
    Buckets buckets;
    const StepTimes times = reducers_step(training, as_view, buckets);
    EXPECT_EQ(buckets, (Buckets{{4}, {3, 2}, {1, 0}}));
    EXPECT_EQ(times.collectives, 3);
    EXPECT_EQ(times.total_ns, kLayers * (kForward + kBackward) + cost_of(2 * kBytes));
  }
}

// Into the bucket, divided on the way, and out of it.
CHILD_TEST(ReducerOnCluster, CopiesTakeTheDevicesTime) {
  ClusterOptions options = bare_network(2, kLink);
  options.device.bytes_per_second = 1e9;
  Training training(options);
  Buckets buckets;
  const StepTimes times = reducers_step(training, /*as_view=*/false, buckets);
  EXPECT_EQ(times.backward_ns, kLayers * (kBackward + 2 * kBytes + 2 * kBytes))
      << "the last bucket is there before those before it are copied out";
}

std::vector<at::Tensor> parameters_of(const std::vector<std::int64_t>& elements) {
  std::vector<at::Tensor> all(elements.size());
  std::ranges::transform(elements, all.begin(),
                         [](std::int64_t count) { return make_parameter({count}); });
  return all;
}

std::string refusal(const std::vector<at::Tensor>& parameters, std::int64_t buffer_elements) {
  return ddp::testing::error_of([&] { python_ddp_plan(parameters, buffer_elements); });
}

CHILD_TEST(PythonDdpPlan, FillsForwardAndNeverBeyondTheSize) {
  EXPECT_EQ(python_ddp_plan(parameters_of({3, 4, 3, 7, 1, 9, 1}), 10),
            (Buckets{{0, 1, 2}, {3, 4}, {5, 6}}));
  EXPECT_EQ(python_ddp_plan(parameters_of({3, 4, 4}), 10), (Buckets{{0, 1}, {2}}));
  EXPECT_EQ(python_ddp_plan({}, 10), Buckets{});
}

CHILD_TEST(PythonDdpPlan, RefusesWhatTheOriginalAssertsAgainst) {
  EXPECT_EQ(refusal(parameters_of({3, 10}), 10),
            "Python DDP: parameter 1 has 10 elements, and a buffer of 10 is to be larger than the "
            "largest of them");
  std::vector<at::Tensor> parameters = parameters_of({3, 4});
  parameters[1] = make_parameter({4}, at::kDouble);
  ddp::testing::expect_contains(refusal(parameters, 10), "parameter 1 is ");
  parameters[1] = parameters[0].detach();
  EXPECT_EQ(refusal(parameters, 10), "Python DDP: parameter 1 is frozen");
}

StepTimes python_ddps_step(bool async) {
  Training training;
  const auto baseline =
      make_python_ddp_baseline(training.model.parameters(), training.cluster.group(),
                               {.buffer_elements = 2 * kElements, .async_reduction = async});
  training.model.step(*baseline);
  return training.model.step(*baseline);
}

// The buffers are layers 0 and 1, 2 and 3, and 4 alone. In the reverse order the last bucket would be
// one layer.
CHILD_TEST(PythonDdpBaseline, ForwardOrderLeavesTheLargestForTheEnd) {
  const StepTimes async = python_ddps_step(true), sync = python_ddps_step(false);
  EXPECT_EQ(async.total_ns, kLayers * (kForward + kBackward) + cost_of(2 * kBytes));
  EXPECT_EQ(sync.total_ns,
            kLayers * (kForward + kBackward) + 2 * cost_of(2 * kBytes) + cost_of(kBytes));
  EXPECT_EQ(async.collectives, 3);
  EXPECT_EQ(sync.collectives, 3);
}

TEST(PythonDdpBaseline, AveragesTheGradients) {
  ddp::testing::run_worlds({1, 2, 3}, [](ddp::testing::Rank& rank) {
    for (const bool async : {true, false}) {
      std::vector<at::Tensor> weights(4);
      for (at::Tensor& weight : weights) {
        weight = at::ones({3, 2}).set_requires_grad(true);
      }
      const auto baseline = make_python_ddp_baseline(
          weights, rank.group(), {.buffer_elements = 12, .async_reduction = async});
      for (int step = 1; step <= 2; ++step) {
        at::Tensor loss = at::zeros({});
        for (int i = 0; i < 4; ++i) {
          weights[i].mutable_grad() = at::Tensor();
          loss = loss + (weights[i] * (step * (10 * i + rank.rank()))).sum();
        }
        loss.backward();
        baseline->finish();
        for (int i = 0; i < 4; ++i) {
          const double mean = step * (10 * i + (rank.world_size() - 1) / 2.0);
          EXPECT_TRUE(at::allclose(weights[i].grad(), at::full({3, 2}, mean))) << weights[i].grad();
        }
      }
    }
  });
}

}  // namespace

}  // namespace ddp::cluster
