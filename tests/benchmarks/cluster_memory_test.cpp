#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <filesystem>
#include <vector>

#include "06_sharded_optimizer/sharded_optimizer.h"
#include "ddp/cluster/meta_memory.h"
#include "ddp/cluster/timed_model.h"
#include "ddp/meters/memory_meter.h"
#include "ddp/ranks/stage_library.h"
#include "support/ranks.h"

// Memory counted on the cluster is what forked ranks take.

namespace ddp {
namespace {

using Sizes = std::vector<std::int64_t>;

constexpr const char* kStage = "06_sharded_optimizer";
const ShardedOptimizerOptions kMeasured = {.cap_bytes = 20'000};

std::unique_ptr<ShardedOptimizer> optimizer_of(const std::vector<at::Tensor>& parameters,
                                               const ProcessGroupPtr& group) {
  return make_sharded_optimizer(
      parameters, {}, group,
      [](std::vector<at::Tensor> shard) {
        return std::make_unique<torch::optim::AdamW>(std::move(shard));
      },
      kMeasured);
}

// Leaves what is held between steps.
void train(const std::vector<at::Tensor>& parameters, ShardedOptimizer& optimizer) {
  for (int step = 0; step < 2; ++step) {
    at::Tensor loss = at::zeros({}, parameters[0].options().requires_grad(false));
    for (const at::Tensor& parameter : parameters) {
      loss = loss + parameter.sum();
    }
    loss.backward();
    optimizer.step();
  }
}

// Bytes beside the parameters.
std::int64_t counted_on_meta(const Sizes& sizes, int ranks) {
  cluster::Cluster cluster(cluster::bare_network(ranks, {}));
  std::vector<at::Tensor> parameters;
  for (const std::int64_t size : sizes) {
    parameters.push_back(cluster::make_parameter({size}));
  }
  const cluster::MetaMemory memory;
  std::unique_ptr<ShardedOptimizer> optimizer;
  cluster.run([&] {
    optimizer = optimizer_of(parameters, cluster.group());
    train(parameters, *optimizer);
  });
  return memory.live_bytes();
}

std::int64_t counted_in_ranks(const Sizes& sizes, int ranks) {
  const Evidence evidence = testing::run_ranks({.ranks = ranks}, [&](testing::Rank& rank) {
    load_stage_library(stage_library("solutions", kStage));
    std::vector<at::Tensor> parameters;
    for (const std::int64_t size : sizes) {
      parameters.push_back(at::ones({size}).set_requires_grad(true));
    }
    const MemoryMeter memory;
    const auto optimizer = optimizer_of(parameters, rank.group());
    train(parameters, *optimizer);
    rank.client().fact("live", memory.live_bytes());
  });
  for (const Seen& seen : evidence.of[0]) {
    if (seen.kind == EventKind::kFact && seen.text == "live") {
      return seen.number;
    }
  }
  return -1;
}

TEST(MetaMemory, CountsWhatStoragesWouldTake) {
  testing::in_child([] {
    cluster::MetaMemory memory;
    {
      const at::Tensor tensor = at::empty({10, 3}, at::TensorOptions(at::kMeta).dtype(at::kHalf));
      const at::Tensor view = tensor.t();
      EXPECT_EQ(memory.live_bytes(), 60);
    }
    EXPECT_EQ(memory.live_bytes(), 0);
    EXPECT_EQ(memory.peak_bytes(), 60);
    memory.reset_peak();
    EXPECT_EQ(memory.peak_bytes(), 0);
    EXPECT_THROW(cluster::MetaMemory(), c10::Error);
  });
}

TEST(MetaMemory, IsThatOfForkedRanks) {
  if (!std::filesystem::exists(stage_library("solutions", kStage))) {
    GTEST_SKIP() << "the solution is not built";
  }
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Sizes& sizes : {Sizes{7}, Sizes{1000, 2001, 5000, 30, 4096}}) {
      const std::int64_t counted = counted_in_ranks(sizes, ranks);
      testing::in_child([&] {
        load_stage_library(stage_library("solutions", kStage));
        EXPECT_EQ(counted_on_meta(sizes, ranks), counted) << ranks << " ranks";
      });
    }
  }
}

}  // namespace
}  // namespace ddp
