#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "buckets.h"
#include "ddp/baselines/reducer_baseline.h"
#include "ddp/referee/client.h"
#include "ddp/virtual_time/virtual_time.h"
#include "grader/chain.h"
#include "grader/grading.h"
#include "grader/training_claims.h"
#include "grader/training_scenarios.h"
#include "scenarios.h"

// How long a step takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

// Bucket b ends at f_b = max(its launch on the last rank, f_(b-1)) + its cost.
Chain chain_of(const std::vector<TrainingOfRank>& ranks, int step, const NetworkModel& network) {
  const Buckets buckets = buckets_of(ranks[0]);
  Chain chain(network, ranks.size());
  const auto launched = chain.launch_in_backward(ranks, step, layers_of(buckets));
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    chain.carry(c10d::OpType::ALLREDUCE, buckets[b].bytes(), launched[b]);
  }
  chain.wait(chain.network_is_free());
  return chain;
}

// Without overlap: backward, then one bucket after another. No clock sees a wait by future: then
// launches may follow each other at once.
Chain blocking_chain_of(const std::vector<TrainingOfRank>& ranks, int step,
                        const NetworkModel& network, bool by_futures) {
  Chain chain(network, ranks.size());
  chain.launch_in_backward(ranks, step, {});
  for (const Bucket& bucket : buckets_of(ranks[0])) {
    const std::int64_t ends = chain.run(c10d::OpType::ALLREDUCE, bucket.bytes());
    chain.wait(by_futures ? 0 : ends);
  }
  chain.wait(chain.network_is_free());
  return chain;
}

Finding wrong_time(const Evidence& evidence, const NetworkModel& network) {
  const auto& ranks = trainings_in(evidence).at(0);
  const ComputeCost cost = layer_times(ranks[0]);
  const VirtualTime time(evidence, network, cost);
  return wrong_times(
      time, cost, ended_steps(ranks[0]),
      [&](int step) {
        return ranks[0].has(kWithOverlap)
                   ? std::vector{chain_of(ranks, step, network)}
                   : std::vector{blocking_chain_of(ranks, step, network, /*by_futures=*/false),
                                 blocking_chain_of(ranks, step, network, /*by_futures=*/true)};
      },
      [](int step, std::int64_t took, const Chain& chain) {
        return off_the_chain(step, took, chain.now(), "launches",
                             "a launch that is late, a wait within backward, or another operation, "
                             "such as a barrier");
      });
}

Finding steps_take_the_chain(const Evidence& evidence) {
  return on_each_network(
      [&](const NetworkModel& network) { return wrong_time(evidence, network); });
}

const GradedTest kStepTime{
    {.name = "step_time_is_the_chain_of_buckets",
     .title = "Step time is backward with overlapped buckets",
     .points = 2,
     .hint = "Bucket b ends at max(its launch on the slowest rank, the end of bucket b-1) + its "
             "cost. Does yours end later? Look for late launches, waits and barriers.",
     .more = "Make a table like that of handout 02's miniature for the failing case: ready, "
             "start, cost and end of each bucket. The first end that differs tells: later than "
             "its last gradient, or later than the bucket before? With overlap = false the "
             "buckets follow each other after backward, and each launch waits for the one before."},
    [] { judge(timed(), steps_take_the_chain, plan_is_wrong); }};

}  // namespace

// The time of a step over the cap, and compared with libtorch's own synchronizer.

namespace {

// The sweep: 64 layers on a network without latency, with an overhead for each launch, and faster
// than backward, since a layer's backward takes longer than the transfer of its bytes.
constexpr std::int64_t kLayers = 64;
constexpr std::int64_t kLayerBytes = 1024;
constexpr double kBeta = 1.0;

Scenario step_of_64_layers(std::int64_t layers_in_bucket, int ranks) {
  const BucketedDdpOptions options{.cap_bytes = layers_in_bucket * kLayerBytes};
  return {"64 layers, " + std::to_string(layers_in_bucket) + " in a bucket, " +
              std::to_string(ranks) + " ranks",
          {.ranks = ranks},
          [options](Client& client) {
            Training training(client, {.layers = equal_layers(kLayers, kLayerBytes / 4)},
                              bucketed(options));
            training.construct();
            training.step();
          },
          "overhead_over_the_cap_is_a_u"};
}

// The time of a step beyond forward and backward.
std::int64_t overhead_ns(const Evidence& evidence, const NetworkModel& network) {
  constexpr std::int64_t kForward = 100;
  constexpr std::int64_t kBackward = 2'000;
  const auto cost = compute_cost(kLayers * kForward, [](std::int64_t, int) { return kBackward; });
  return VirtualTime(evidence, network, cost).step_ns(0) - kLayers * (kForward + kBackward);
}

std::string list_of(const std::vector<std::int64_t>& overheads) {
  std::string text;
  for (std::size_t i = 0; i < overheads.size(); ++i) {
    text += "\n    cap " + std::to_string(kLayerBytes << i) + " bytes: " + duration(overheads[i]);
  }
  return text;
}

std::string no_u(const std::vector<std::int64_t>& overheads, int ranks, std::int64_t launch_ns) {
  const double w = ranks / (2.0 * (ranks - 1) * kBeta);
  const double best_cap = std::sqrt(static_cast<double>(kLayers * kLayerBytes * launch_ns) * w);
  const auto lowest = std::ranges::min_element(overheads) - overheads.begin();
  const double steps_from_best =
      std::abs(std::log2(static_cast<double>(kLayerBytes << lowest)) - std::log2(best_cap));
  if (steps_from_best > 1) {
    return "the overhead (step end - forward - backward) should be lowest at the cap next to b* = "
           "sqrt(S w o) = " +
           std::to_string(std::llround(best_cap)) +
           " bytes, or one beside it; measured:" + list_of(overheads);
  }
  const bool falls =
      std::is_sorted(overheads.begin(), overheads.begin() + lowest + 1, std::greater_equal{});
  const bool rises = std::is_sorted(overheads.begin() + lowest, overheads.end(), std::less_equal{});
  return falls && rises && overheads.front() > overheads[lowest] &&
                 overheads.back() > overheads[lowest]
             ? ""
             : "as the cap grows the overhead should fall to a minimum and then rise, a U: small "
               "buckets pay for launches, large ones end late. Measured:" +
                   list_of(overheads);
}

const GradedTest kUShape{
    {.name = "overhead_over_the_cap_is_a_u",
     .title = "Overhead over the cap is a U",
     .points = 1,
     .hint = "Respect every cap, from the smallest to the largest: one launch for each bucket, "
             "during backward, and only the last bucket's transfer after it.",
     .more = "The failure lists the overhead of each cap; compare the two ends with \"Cost "
             "model\". Flat on the left: are small caps respected, or do you join buckets? No "
             "rise on the right: with one bucket nothing can be hidden, so something was sent "
             "early. Too high everywhere: is there a launch, a wait or a barrier for each bucket "
             "too many?"},
    [] {
      for (const int ranks : {2, 4}) {
        std::vector<Scenario> sweep;
        for (std::int64_t layers = 1; layers <= kLayers; layers *= 2) {
          sweep.push_back(step_of_64_layers(layers, ranks));
        }
        judge_together(sweep, [ranks](const std::vector<const Evidence*>& all) {
          for (const std::int64_t launch_ns : {300, 1'000, 3'000}) {
            std::vector<std::int64_t> overheads;
            overheads.reserve(all.size());
            for (const Evidence* evidence : all) {
              overheads.push_back(overhead_ns(
                  *evidence,
                  {.alpha_ns = 0, .beta_ns_per_byte = kBeta, .launch_overhead_ns = launch_ns}));
            }
            if (std::string text = no_u(overheads, ranks, launch_ns); !text.empty()) {
              return text;
            }
          }
          return std::string();
        });
      }
    }};

// c10d::Reducer as a synchronizer: it waits at the end of backward.
class ReducerAsSynchronizer : public GradientSynchronizer {
 public:
  ReducerAsSynchronizer(const std::vector<at::Tensor>& parameters, const ProcessGroupPtr& group,
                        std::int64_t cap)
      : baseline_(parameters, {}, group, {.first_bucket_bytes = cap, .cap_bytes = cap}) {
    prepare();
  }
  void finish() override { prepare(); }

 private:
  void prepare() {
    baseline_.before_forward();
    baseline_.before_backward();
  }

  ReducerBaseline baseline_;
};

// 24 layers for the comparison with libtorch's own synchronizer.
std::vector<Layer> layers_for_the_reducer() {
  std::vector<Layer> layers;
  for (std::int64_t i = 0; i < 24; ++i) {
    layers.push_back({{64 * (1 + i * 7 % 5)}});
  }
  return layers;
}

constexpr int kLastStep = 2;  // the Reducer has rebuilt its buckets by then

Scenario ours(std::int64_t cap, int ranks) {
  return {"24 layers, cap " + std::to_string(cap) + ", " + std::to_string(ranks) + " ranks",
          {.ranks = ranks},
          [cap](Client& client) {
            Training training(client, {.layers = layers_for_the_reducer()},
                              bucketed({.cap_bytes = cap}));
            training.construct();
            for (int step = 0; step <= kLastStep; ++step) {
              training.step();
            }
          },
          "never_slower_than_the_reducer"};
}

Scenario reducers(std::int64_t cap, int ranks) {
  const Factory make = [cap](Client&, const std::vector<at::Tensor>& parameters,
                             const std::vector<at::Tensor>&, const ProcessGroupPtr& group) {
    return std::make_unique<ReducerAsSynchronizer>(parameters, group, cap);
  };
  Scenario scenario = ours(cap, ranks);
  scenario.name += ", by c10d::Reducer";
  scenario.world.hold = false;  // it waits in backward
  scenario.instead_of_stage = "libddp_baselines.so";
  scenario.run = [make](Client& client) {
    Training training(client, {.layers = layers_for_the_reducer()}, make);
    training.construct();
    for (int step = 0; step <= kLastStep; ++step) {
      training.step();
    }
  };
  return scenario;
}

std::int64_t last_step_ns(const Evidence& evidence, const NetworkModel& network) {
  const auto cost =
      compute_cost(24 * 500, [](std::int64_t, int rank) { return 2'000 + 300 * rank; });
  return VirtualTime(evidence, network, cost).step_ns(kLastStep);
}

const GradedTest kReducer{
    {.name = "never_slower_than_the_reducer",
     .title = "Never slower than PyTorch's Reducer",
     .points = 1,
     .hint = "c10d::Reducer launches a bucket in the hook of its last gradient, and waits when "
             "backward has ended. Given the same cap, what do you do that it does not?",
     .more = "Both have the same buckets, so only moments can differ. Find the first bucket that "
             "yours launches later (TRACE=step.json), and ask what it has waited for: its turn, a "
             "gradient that was there already, or finish()? What do you send that is no bucket?"},
    [] {
      for (const int ranks : {2, 3}) {
        for (const std::int64_t cap : {1, 2'000, 8'000, 1 << 20}) {
          judge_together({ours(cap, ranks), reducers(cap, ranks)}, [](const auto& both) {
            if (const Finding found = every_step_reduces(*both[0]); !found.empty()) {
              return found.text;
            }
            for (const NetworkModel& network :
                 {NetworkModel{.alpha_ns = 500, .beta_ns_per_byte = 0.5, .launch_overhead_ns = 200},
                  NetworkModel{.alpha_ns = 10'000, .beta_ns_per_byte = 8.0}}) {
              const std::int64_t own = last_step_ns(*both[0], network);
              const std::int64_t reducer = last_step_ns(*both[1], network);
              if (own > reducer) {
                return "a step takes " + duration(own) +
                       " of simulated time, and c10d::Reducer's " + duration(reducer) +
                       " with the same cap on the same network: where do you lose " +
                       duration(own - reducer) + "?";
              }
            }
            return std::string();
          });
        }
      }
    }};

}  // namespace

}  // namespace ddp::testing
