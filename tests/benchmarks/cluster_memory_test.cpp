// Memory counted on the cluster is what forked ranks take, and of the kinds that it is.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>

#include <filesystem>
#include <functional>
#include <map>
#include <vector>

#include "common/ranks.h"
#include "ddp/cluster/cluster.h"
#include "ddp/cluster/meta_memory.h"
#include "ddp/cluster/timed_model.h"
#include "ddp/meters/memory_meter.h"
#include "ddp/ranks/stage_library.h"
#include "measuring/on_cluster.h"
#include "measuring/variants.h"

namespace ddp {
namespace {

using cluster::MemoryKind;
using cluster::MemoryScope;
using cluster::MemoryUse;
using cluster::MetaMemory;

constexpr std::int64_t kRows = 3, kDepth = 4;
constexpr int kTrained = 3;

using Note = std::function<void(const std::string& moment)>;

// Layers of width x width, with AdamW. Notes moments of the last step; all are made before.
void train_and_tell(const std::string& variant, const at::Tensor& x,
                    const std::vector<at::Tensor>& layers, const ProcessGroupPtr& group,
                    const Note& note) {
  VariantOptions options = {.cap_bytes = 1'000, .optimizer = counted_adamw};
  for (const at::Tensor& layer : layers) {
    options.units.push_back({{layer}, [](const at::Tensor& input, const auto& own) {
                               return at::tanh(at::mm(input, own[0]));
                             }});
  }
  const Variant::Forward whole = [&](const at::Tensor& y) { return through(options.units, y); };
  const auto made = make_variant(variant, layers, group, options);
  for (int step = 0; step < kTrained; ++step) {
    const Note& tell = step + 1 == kTrained ? note : [](const std::string&) {};
    for (const at::Tensor& layer : layers) {
      layer.mutable_grad() = at::Tensor();
    }
    made->before_forward();
    tell("before");
    at::Tensor y;
    {
      const MemoryScope scope(MemoryKind::kActivations, "forward");
      y = made->forward(whole, x);
      tell("forward");
    }
    {
      const MemoryScope scope(MemoryKind::kGradients, "backward");
      y.backward(at::ones_like(y));
      y.reset();
      tell("backward");
    }
    const MemoryScope scope(MemoryKind::kGradients, "finish");
    made->finish();
    tell("finish");
  }
}

std::vector<at::Tensor> make_squares(std::int64_t width, at::Device device) {
  std::vector<at::Tensor> layers;
  for (std::int64_t i = 0; i < kDepth; ++i) {
    layers.push_back(at::ones({width, width}, device).set_requires_grad(true));
  }
  return layers;
}

// Bytes beside layers and input.
std::map<std::string, MemoryUse> counted_on_meta(const std::string& variant, std::int64_t width,
                                                 int ranks) {
  cluster::Cluster cluster(cluster::bare_network(ranks, {}));
  const std::vector<at::Tensor> layers = make_squares(width, at::kMeta);
  const at::Tensor x = at::ones({kRows, width}, at::kMeta);
  MetaMemory memory;
  std::map<std::string, MemoryUse> uses;
  cluster.run([&] {
    train_and_tell(variant, x, layers, cluster.group(), [&](const std::string& moment) {
      if (moment == "before") {
        memory.reset_peak();
      }
      uses[moment] = memory.live();
    });
  });
  uses["peak"] = memory.peak();
  return uses;
}

std::map<std::string, std::int64_t> counted_in_ranks(const std::string& variant, std::int64_t width,
                                                     int ranks) {
  const World world = {.ranks = ranks, .hold = false};
  const Evidence evidence = testing::run_ranks(world, [&](testing::Rank& rank) {
    load_stage_library(stage_library("solutions", stage_of(variant)));
    const std::vector<at::Tensor> layers = make_squares(width, at::kCPU);
    const at::Tensor x = at::ones({kRows, width});
    MemoryMeter memory;
    train_and_tell(variant, x, layers, rank.group(), [&](const std::string& moment) {
      if (moment == "before") {
        memory.reset_peak();
      }
      rank.client().fact(moment, memory.live_bytes());
      rank.client().fact("peak", memory.peak_bytes());  // the last one counts
    });
  });
  std::map<std::string, std::int64_t> bytes;
  for (const Seen& seen : evidence.of[0]) {
    if (seen.kind == EventKind::kFact) {
      bytes[seen.text] = seen.number;
    }
  }
  return bytes;
}

// Whole bytes of all shards: each layer is a bucket, or a unit, of its own.
std::int64_t shards_of(std::int64_t width, int ranks) {
  return kDepth * 4 * ((width * width + ranks - 1) / ranks);
}

using Kinds = std::array<std::int64_t, cluster::kMemoryKinds.size()>;

// Held after a step by a rank, beside the parameters that it was given.
Kinds expected(const std::string& variant, std::int64_t width, int ranks) {
  const std::int64_t all = kDepth * 4 * width * width, shard = shards_of(width, ranks);
  if (variant == "bucketed") {
    return {0, all, 2 * all, 0};
  }
  return {shard, variant == "sharded" ? 0 : shard, 2 * shard, 0};
}

void expect_the_same(const std::string& variant) {
  if (!std::filesystem::exists(stage_library("solutions", stage_of(variant)))) {
    GTEST_SKIP() << "the solution is not built";
  }
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::int64_t width : {16, 17}) {
      const auto counted = counted_in_ranks(variant, width, ranks);
      testing::in_child([&] {
        load_stage_library(stage_library("solutions", stage_of(variant)));
        auto uses = counted_on_meta(variant, width, ranks);
        for (const char* moment : {"before", "forward", "backward", "finish", "peak"}) {
          EXPECT_EQ(uses[moment].total(), counted.at(moment))
              << variant << ", " << moment << ", " << ranks << " ranks, width " << width;
        }
        EXPECT_EQ(uses["finish"].bytes, expected(variant, width, ranks)) << variant << ranks;
        // Of each layer the result, which is what the next one has been given.
        const std::int64_t kept = kDepth * 4 * kRows * width;
        EXPECT_EQ(uses["forward"].of(MemoryKind::kActivations), kept) << variant;
        EXPECT_EQ(counted.at("forward") - counted.at("before"), kept) << variant;
        EXPECT_EQ(uses["backward"].of(MemoryKind::kActivations), 0) << variant;
      });
    }
  }
}

TEST(MetaMemory, CountsWhatStoragesWouldTake) {
  testing::in_child([] {
    MetaMemory memory;
    {
      const at::Tensor tensor = at::empty({10, 3}, at::TensorOptions(at::kMeta).dtype(at::kHalf));
      const at::Tensor view = tensor.t();
      EXPECT_EQ(memory.live_bytes(), 60);
    }
    EXPECT_EQ(memory.live_bytes(), 0);
    EXPECT_EQ(memory.peak_bytes(), 60);
    memory.reset_peak();
    EXPECT_EQ(memory.peak_bytes(), 0);
    EXPECT_THROW(MetaMemory(), c10::Error);
  });
}

TEST(MetaMemory, KnowsKindsAndTheMomentOfThePeak) {
  testing::in_child([] {
    MetaMemory memory;
    const auto bytes = [](std::int64_t n) {
      return at::empty({n}, at::device(at::kMeta).dtype(at::kByte));
    };
    const at::Tensor parameter = bytes(10);
    const at::Tensor early = bytes(1);
    {
      const MemoryScope scope(MemoryKind::kActivations, "forward");
      const at::Tensor told_in_time = bytes(20);
      const at::Tensor activation = bytes(40);
      tell_kind(told_in_time, MemoryKind::kParameters);
    }
    const at::Tensor late = bytes(2);  // not there at the peak
    tell_kind(early, MemoryKind::kGradients);
    tell_kind(late, MemoryKind::kGradients);
    EXPECT_EQ(memory.peak().bytes, (Kinds{30, 1, 0, 40}));
    EXPECT_STREQ(memory.peak().moment, "forward");
    EXPECT_EQ(memory.live().bytes, (Kinds{10, 3, 0, 0}));
  });
}

TEST(MetaMemory, IsThatOfForkedRanksWithBuckets) { expect_the_same("bucketed"); }

TEST(MetaMemory, IsThatOfForkedRanksWithAShardedOptimizer) { expect_the_same("sharded"); }

TEST(MetaMemory, IsThatOfForkedRanksThatAreFullySharded) { expect_the_same("fully sharded"); }

}  // namespace
}  // namespace ddp
