#include <algorithm>
#include <cmath>

#include "bodies.h"
#include "ddp/simulation/virtual_time.h"
#include "reducer.h"
#include "subject.h"
#include "support/grading.h"
#include "support/training_claims.h"

// The time of a step over the cap, and compared with libtorch's own synchronizer.

namespace ddp::testing {

namespace {

// The sweep: 64 layers on a network without latency, with an overhead for each launch, and faster
// than backward, since a layer's backward takes longer than the transfer of its bytes.
constexpr std::int64_t kLayers = 64;
constexpr std::int64_t kLayerBytes = 1024;
constexpr double kBeta = 1.0;

Body step_of_64_layers(std::int64_t layers_in_bucket, int ranks) {
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
  const ComputeCost cost = [](const Seen& seen, int) -> std::int64_t {
    const bool forward = seen.kind == EventKind::kPhase && seen.place.phase == Phase::kForward;
    return forward ? kLayers * kForward : seen.kind == EventKind::kReady ? kBackward : 0;
  };
  return VirtualTime(evidence, network, cost).step_ns(0) - kLayers * (kForward + kBackward);
}

std::string list_of(const std::vector<std::int64_t>& overheads) {
  std::string text;
  for (std::size_t i = 0; i < overheads.size(); ++i) {
    text += "\n    cap " + std::to_string(kLayerBytes << i) +
            " bytes: " + std::to_string(overheads[i]) + " ns";
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
    return "the overhead (step end - forward - backward) should be lowest within one step of the "
           "sweep from b* = sqrt(S w o) = " +
           std::to_string(best_cap) + " bytes; it is:" + list_of(overheads);
  }
  const bool falls =
      std::is_sorted(overheads.begin(), overheads.begin() + lowest + 1, std::greater_equal{});
  const bool rises = std::is_sorted(overheads.begin() + lowest, overheads.end(), std::less_equal{});
  return falls && rises && overheads.front() > overheads[lowest] &&
                 overheads.back() > overheads[lowest]
             ? ""
             : "over the cap the overhead should fall to its minimum and rise after it, a U: small "
               "buckets pay for launches, large ones end late. It is:" +
                   list_of(overheads);
}

const GradedTest kUShape{
    {.name = "overhead_over_the_cap_is_a_u",
     .points = 1,
     .hint = "Respect every cap, from the smallest to the largest: one launch for each bucket, "
             "during backward, and only the last bucket's transfer after it."},
    [] {
      for (const int ranks : {2, 4}) {
        std::vector<Body> sweep;
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

// 24 layers for the comparison with libtorch's own synchronizer.
std::vector<Layer> layers_for_the_reducer() {
  std::vector<Layer> layers;
  for (std::int64_t i = 0; i < 24; ++i) {
    layers.push_back({{64 * (1 + i * 7 % 5)}});
  }
  return layers;
}

constexpr int kLastStep = 2;  // the Reducer has rebuilt its buckets by then

Body ours(std::int64_t cap, int ranks) {
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

Body reducers(std::int64_t cap, int ranks) {
  const Factory make = [cap](Client&, const std::vector<at::Tensor>& parameters,
                             const std::vector<at::Tensor>&, const ProcessGroupPtr& group) {
    return std::make_unique<ReducerAsSynchronizer>(parameters, group, cap);
  };
  Body body = ours(cap, ranks);
  body.name += ", by c10d::Reducer";
  body.world.hold = false;  // it waits in backward
  body.run = [make](Client& client) {
    Training training(client, {.layers = layers_for_the_reducer()}, make);
    training.construct();
    for (int step = 0; step <= kLastStep; ++step) {
      training.step();
    }
  };
  return body;
}

std::int64_t last_step_ns(const Evidence& evidence, const NetworkModel& network) {
  const ComputeCost cost = [](const Seen& seen, int rank) -> std::int64_t {
    const bool forward = seen.kind == EventKind::kPhase && seen.place.phase == Phase::kForward;
    return forward ? 24 * 500 : seen.kind == EventKind::kReady ? 2'000 + 300 * rank : 0;
  };
  return VirtualTime(evidence, network, cost).step_ns(kLastStep);
}

const GradedTest kReducer{
    {.name = "never_slower_than_the_reducer",
     .points = 1,
     .hint = "c10d::Reducer launches a bucket in the hook of its last gradient, and waits when "
             "backward has ended. Given the same cap, what do you do that it does not?"},
    [] {
      for (const int ranks : {2, 3}) {
        for (const std::int64_t cap : {1, 2'000, 8'000, 1 << 20}) {
          judge_together({ours(cap, ranks), reducers(cap, ranks)}, [](const auto& both) {
            if (std::string text = every_step_reduces(*both[0]); !text.empty()) {
              return text;
            }
            for (const NetworkModel& network :
                 {NetworkModel{.alpha_ns = 500, .beta_ns_per_byte = 0.5, .launch_overhead_ns = 200},
                  NetworkModel{.alpha_ns = 10'000, .beta_ns_per_byte = 8.0}}) {
              const std::int64_t own = last_step_ns(*both[0], network);
              const std::int64_t reducer = last_step_ns(*both[1], network);
              if (own > reducer) {
                return "a step takes " + std::to_string(own) + " virtual ns, and c10d::Reducer's " +
                       std::to_string(reducer) +
                       " with the same cap on the same network: where do you lose " +
                       std::to_string(own - reducer) + "?";
              }
            }
            return std::string();
          });
        }
      }
    }};

}  // namespace

}  // namespace ddp::testing
