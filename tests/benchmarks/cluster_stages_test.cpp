// Stages and their baselines on the simulated cluster, beside real forked ranks: what these did, priced
// for the same network, takes as many nanoseconds where copies cost nothing, and the processor that
// computes launches communication.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>

#include "baselines/all_reduces.h"
#include "common/ranks.h"
#include "ddp/ranks/stage_library.h"
#include "ddp/timeline/simulated_compute.h"
#include "ddp/virtual_time/virtual_time.h"
#include "measuring/on_cluster.h"

namespace ddp {
namespace {

using cluster::bare_network;
using cluster::Cluster;
using cluster::StepTimes;
using cluster::TimedLayer;
using cluster::TimedModel;
using testing::Rank;

const std::vector<std::string> kVariants = {"naive",           "flat",          "overlapped",
                                            "bucketed",        "bucketed sync", "Reducer",
                                            "Reducer as_view", "Python DDP",    "Python DDP sync",
                                            "sharded",         "no prefetch",   "fully sharded"};
constexpr const char* kStages[] = {"01_naive_ddp",         "02_overlapped_ddp", "03_bucketed_ddp",
                                   "06_sharded_optimizer", "07_fully_sharded",  kRingStage};
const VariantOptions kOptions{.cap_bytes = 4'000, .first_bucket_bytes = 1'000};
constexpr int kSteps = 4;  // construction is one; in the next, the Reducer has other buckets

struct Layer {
  std::int64_t elements, forward_ns, backward_ns;
};
constexpr Layer kLayers[] = {{300, 5'000, 9'000}, {900, 200, 100}, {1, 70, 4'000},
                             {640, 3'000, 10},    {128, 1, 2},     {777, 10'000, 20},
                             {32, 0, 0},          {250, 6, 50'000}};

void load_solutions() {
  for (const char* stage : kStages) {
    load_stage_library(stage_library("solutions", stage));
  }
}

bool solutions_are_built() {
  return std::ranges::all_of(kStages, [](const char* stage) {
    return std::filesystem::exists(stage_library("solutions", stage));
  });
}

class ClusterStages : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!solutions_are_built()) {
      GTEST_SKIP() << "a solution is not built";
    }
  }
};

// The same layers, with values: their gradients come in the same order.
void train(Rank& rank, const std::string& variant, int first_step) {
  Client& client = rank.client();
  const ComputeListener compute = [&](std::int64_t ns, const std::string& name) {
    client.compute(ns, name);
  };
  std::vector<at::Tensor> weights;
  for (const Layer& layer : kLayers) {
    weights.push_back(at::zeros({layer.elements}).set_requires_grad(true));
  }
  VariantOptions options = kOptions;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    options.units.push_back({{weights[i]}, [&compute, i](const at::Tensor& x, const auto& own) {
                               const at::Tensor y =
                                   simulated_compute(x + own[0].sum(), compute,
                                                     kLayers[i].forward_ns, kLayers[i].backward_ns);
                               return y.view_as(y);
                             }});
  }
  const auto whole = [&](const at::Tensor& x) { return through(options.units, x); };
  client.go_to({.phase = Phase::kConstruction, .step = first_step});
  const auto made = make_variant(variant, weights, rank.group(), options);
  for (int step = 1; step < kSteps; ++step) {
    client.go_to({.phase = Phase::kForward, .step = first_step + step});
    made->before_forward();
    for (const at::Tensor& weight : weights) {
      weight.mutable_grad() = at::Tensor();
    }
    const at::Tensor x = made->forward(whole, at::zeros({}));
    client.go_to({.phase = Phase::kBackward, .step = first_step + step});
    made->before_backward();
    x.backward();
    client.go_to({.phase = Phase::kFinish, .step = first_step + step});
    made->finish();
    client.go_to({.phase = Phase::kSetup, .step = first_step + step});
  }
}

std::vector<TimedLayer> timed_layers() {
  std::vector<TimedLayer> layers;
  for (const Layer& layer : kLayers) {
    layers.push_back({.parameters = {cluster::make_parameter({layer.elements})},
                      .forward_ns = layer.forward_ns,
                      .backward_ns = layer.backward_ns,
                      .name = "layers." + std::to_string(layers.size())});
  }
  return layers;
}

TEST_F(ClusterStages, StepsTakeWhatForkedRanksTake) {
  constexpr std::int64_t kAlpha = 3'000;
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const Evidence evidence = testing::run_ranks({.ranks = ranks}, [](Rank& rank) {
      load_solutions();
      int step = 0;
      for (const std::string& variant : kVariants) {
        train(rank, variant, step);
        step += kSteps;
      }
    });
    ASSERT_TRUE(evidence.reports.ok());
    for (const auto& [beta, launch_ns] : std::initializer_list<std::pair<double, std::int64_t>>{
             {0.1, 0}, {2.7, 0}, {40, 0}, {2.7, 800}}) {
      const VirtualTime forked(
          evidence, {.alpha_ns = kAlpha, .beta_ns_per_byte = beta, .launch_overhead_ns = launch_ns},
          [](const Seen& seen, int) {
            return seen.kind == EventKind::kCompute ? seen.number : std::int64_t{0};
          });
      testing::in_child([&, beta = beta, launch_ns = launch_ns] {
        load_solutions();
        cluster::ClusterOptions options =
            bare_network(ranks, {.alpha_ns = kAlpha, .beta_ns_per_byte = beta});
        options.collective_launch_ns = launch_ns;
        Cluster cluster(options);
        TimedModel model(cluster, timed_layers());
        for (std::size_t i = 0; i < kVariants.size(); ++i) {
          EXPECT_EQ(simulate_step(kVariants[i], cluster, model, kOptions).total_ns,
                    forked.step_ns(static_cast<int>(i) * kSteps + kSteps - 1))
              << kVariants[i] << ", " << ranks << " ranks, beta " << beta << ", launch "
              << launch_ns;
        }
      });
    }
  }
}

// Equal layers, whose all-reduces take less than their backward: bucket b ends cost(b) after its
// last gradient, and the step with the last one.
TEST_F(ClusterStages, ALargerLastBucketTakesLongerByWhatItsBytesCost) {
  testing::in_child([] {
    load_solutions();
    constexpr std::int64_t kLayerBytes = 4'000, kCount = 6, kAlpha = 100;
    Cluster cluster(bare_network(2, {.alpha_ns = kAlpha, .beta_ns_per_byte = 1}));
    std::vector<TimedLayer> layers(kCount);
    for (TimedLayer& layer : layers) {
      layer = {.parameters = {cluster::make_parameter({kLayerBytes / 4})},
               .forward_ns = 1'000,
               .backward_ns = 10'000};
    }
    TimedModel model(cluster, layers);
    const auto took = [&](const std::string& variant, std::int64_t layers_of_a_bucket) {
      return simulate_step(variant, cluster, model, {.cap_bytes = layers_of_a_bucket * kLayerBytes})
          .total_ns;
    };
    const std::int64_t computing = kCount * 11'000;
    const auto cost = [](std::int64_t layers) { return 2 * kAlpha + layers * kLayerBytes; };
    EXPECT_EQ(took("bucketed", 1), computing + cost(1));
    EXPECT_EQ(took("overlapped", 1), computing + cost(1));
    EXPECT_EQ(took("bucketed", 4), computing + cost(2)) << "the last bucket has two layers left";
    EXPECT_EQ(took("bucketed", kCount), computing + cost(kCount)) << "one bucket hides nothing";
    EXPECT_EQ(took("flat", 1), computing + cost(kCount));
    EXPECT_EQ(took("bucketed sync", 4), computing + cost(4) + cost(2));
    EXPECT_EQ(took("naive", 1), computing + kCount * cost(1));
    // Buffers are filled from the first layer on: the four of the full one are ready last.
    EXPECT_EQ(took("Python DDP", 4), computing + cost(4));
  });
}

const std::vector<std::string> kAllReduces = {kRing, "butterfly", "recursive doubling", "tree"};

// Rank 0 does what the others do only where these are a power of two: else some have no partner.
bool needs_power_of_two(const std::string& all_reduce) {
  return all_reduce == "recursive doubling" || all_reduce == "tree";
}

std::int64_t simulated_ns(const std::string& all_reduce, const cluster::ClusterOptions& options,
                          std::int64_t elements) {
  Cluster cluster(options);
  return cluster.time([&] {
    const at::Tensor tensor = cluster::make_parameter({elements}).detach();
    all_reduce_named(all_reduce).run(tensor, cluster.group(), ReduceOp::kSum);
  });
}

cluster::ClusterOptions options_for(const std::string& all_reduce, int ranks, cluster::Link link) {
  cluster::ClusterOptions options = bare_network(ranks, link);
  options.others_in_step = all_reduce == "tree";
  return options;
}

// Their chunks are equal.
TEST_F(ClusterStages, AllReducesTakeWhatForkedRanksTake) {
  constexpr std::int64_t kElements = 840 * 8;  // a multiple of every number of ranks
  constexpr cluster::Link kLink{.alpha_ns = 2'000, .beta_ns_per_byte = 1.5};
  for (const int ranks : {2, 3, 4, 5, 6, 7, 8}) {
    const Evidence evidence = testing::run_ranks({.ranks = ranks}, [&](Rank& rank) {
      load_solutions();
      for (std::size_t i = 0; i < kAllReduces.size(); ++i) {
        rank.client().go_to({.phase = Phase::kCall, .step = static_cast<int>(i)});
        all_reduce_named(kAllReduces[i]).run(at::ones({kElements}), rank.group(), ReduceOp::kSum);
        rank.client().go_to({.phase = Phase::kSetup, .step = static_cast<int>(i)});
      }
    });
    ASSERT_TRUE(evidence.reports.ok());
    const VirtualTime forked(
        evidence, {.alpha_ns = kLink.alpha_ns, .beta_ns_per_byte = kLink.beta_ns_per_byte},
        [](const Seen&, int) { return std::int64_t{0}; });
    testing::in_child([&] {
      load_solutions();
      for (std::size_t i = 0; i < kAllReduces.size(); ++i) {
        if (!needs_power_of_two(kAllReduces[i]) || std::has_single_bit(unsigned(ranks))) {
          EXPECT_EQ(
              simulated_ns(kAllReduces[i], options_for(kAllReduces[i], ranks, kLink), kElements),
              forked.step_ns(static_cast<int>(i)))
              << kAllReduces[i] << ", " << ranks << " ranks";
        }
      }
    });
  }
}

TEST_F(ClusterStages, AllReducesOf4096RanksTakeWhatTheirFormulasSay) {
  testing::in_child([] {
    load_solutions();
    constexpr cluster::Link kLink{.alpha_ns = 2'000, .beta_ns_per_byte = 1};
    for (const int ranks : {16, 512, 4096}) {
      const std::int64_t elements = 3 * ranks, whole = 2'000 + 4 * elements, chunk = 2'000 + 4 * 3;
      const std::int64_t log = std::bit_width(unsigned(ranks)) - 1;
      const std::vector<std::pair<std::string, std::int64_t>> expected = {
          {kRing, 2 * (ranks - 1) * chunk},
          {"butterfly", 2 * (ranks - 1) * chunk},
          {"recursive doubling", log * whole},
          {"tree", 2 * log * whole}};
      for (const auto& [name, ns] : expected) {
        EXPECT_EQ(simulated_ns(name, options_for(name, ranks, kLink), elements), ns)
            << name << ", " << ranks << " ranks";
      }
    }
  });
}

}  // namespace
}  // namespace ddp
