#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <filesystem>
#include <functional>
#include <vector>

#include "06_sharded_optimizer/sharded_optimizer.h"
#include "07_fully_sharded/fully_sharded.h"
#include "ddp/cluster/meta_memory.h"
#include "ddp/cluster/timed_model.h"
#include "ddp/meters/memory_meter.h"
#include "ddp/ranks/stage_library.h"
#include "support/ranks.h"

// Memory counted on the cluster is what forked ranks take.

namespace ddp {
namespace {

using Sizes = std::vector<std::int64_t>;

// Trains for two steps, and returns what is held after them.
using Trains =
    std::function<std::shared_ptr<void>(const std::vector<at::Tensor>&, const ProcessGroupPtr&)>;

struct Stage {
  const char* name;
  Trains train;
};

std::unique_ptr<torch::optim::Optimizer> adamw(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::AdamW>(std::move(parameters));
}

std::shared_ptr<void> with_sharded_optimizer(const std::vector<at::Tensor>& parameters,
                                             const ProcessGroupPtr& group) {
  const std::shared_ptr<ShardedOptimizer> optimizer =
      make_sharded_optimizer(parameters, {}, group, adamw, {.cap_bytes = 20'000});
  for (int step = 0; step < 2; ++step) {
    at::Tensor loss = at::zeros({}, parameters[0].options().requires_grad(false));
    for (const at::Tensor& parameter : parameters) {
      loss = loss + parameter.sum();
    }
    loss.backward();
    optimizer->step();
  }
  return optimizer;
}

std::shared_ptr<void> with_units(const std::vector<at::Tensor>& parameters,
                                 const ProcessGroupPtr& group) {
  struct Held {
    std::unique_ptr<FullySharded> model;
    std::unique_ptr<torch::optim::Optimizer> optimizer;
  };
  std::vector<Unit> units;
  for (const at::Tensor& parameter : parameters) {
    units.push_back({{parameter}, [](const at::Tensor& x, const std::vector<at::Tensor>& layer) {
                       return x + layer[0].sum();
                     }});
  }
  const auto held = std::make_shared<Held>();
  held->model = make_fully_sharded(std::move(units), group);
  held->optimizer = adamw(held->model->shards());
  for (int step = 0; step < 2; ++step) {
    at::Tensor x = at::zeros({}, parameters[0].options().requires_grad(false));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      x = held->model->forward(i, x);
    }
    x.backward();
    held->model->finish();
    held->optimizer->step();
  }
  return held;
}

// Bytes beside the given parameters.
std::int64_t counted_on_meta(const Stage& stage, const Sizes& sizes, int ranks) {
  cluster::Cluster cluster(cluster::bare_network(ranks, {}));
  std::vector<at::Tensor> parameters;
  for (const std::int64_t size : sizes) {
    parameters.push_back(cluster::make_parameter({size}));
  }
  const cluster::MetaMemory memory;
  std::shared_ptr<void> held;
  cluster.run([&] { held = stage.train(parameters, cluster.group()); });
  return memory.live_bytes();
}

std::int64_t counted_in_ranks(const Stage& stage, const Sizes& sizes, int ranks) {
  const World world = {.ranks = ranks, .hold = false};
  const Evidence evidence = testing::run_ranks(world, [&](testing::Rank& rank) {
    load_stage_library(stage_library("solutions", stage.name));
    std::vector<at::Tensor> parameters;
    for (const std::int64_t size : sizes) {
      parameters.push_back(at::ones({size}).set_requires_grad(true));
    }
    const MemoryMeter memory;
    const std::shared_ptr<void> held = stage.train(parameters, rank.group());
    rank.client().fact("live", memory.live_bytes());
  });
  for (const Seen& seen : evidence.of[0]) {
    if (seen.kind == EventKind::kFact && seen.text == "live") {
      return seen.number;
    }
  }
  return -1;
}

void expect_the_same(const Stage& stage) {
  if (!std::filesystem::exists(stage_library("solutions", stage.name))) {
    GTEST_SKIP() << "the solution is not built";
  }
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Sizes& sizes : {Sizes{7}, Sizes{1000, 2001, 5000, 30, 4096}}) {
      const std::int64_t counted = counted_in_ranks(stage, sizes, ranks);
      testing::in_child([&] {
        load_stage_library(stage_library("solutions", stage.name));
        EXPECT_EQ(counted_on_meta(stage, sizes, ranks), counted) << ranks << " ranks";
      });
    }
  }
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

TEST(MetaMemory, IsThatOfForkedRanksWithAShardedOptimizer) {
  expect_the_same({"06_sharded_optimizer", with_sharded_optimizer});
}

TEST(MetaMemory, IsThatOfForkedRanksThatAreFullySharded) {
  expect_the_same({"07_fully_sharded", with_units});
}

}  // namespace
}  // namespace ddp
