#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "ddp/peers/reducer_peer.h"
#include "plan.h"
#include "support/chain_model.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/grading.h"

// How long a step takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

std::int64_t all_reduce_cost(Rank& rank, std::int64_t bytes) {
  return cost_ns(rank.network().network(), c10d::OpType::ALLREDUCE, bytes, rank.world_size());
}

// Layers differ in elements and in time of backward, so that no two launches look alike. Ranks with
// higher numbers are slower.
std::vector<ChainLayer> layers_of(int rank, const std::vector<std::int64_t>& elements) {
  std::vector<ChainLayer> layers;
  layers.reserve(elements.size());
  for (const std::int64_t count : elements) {
    layers.push_back({.elements = count,
                      .forward_ns = 3'000 + count,
                      .backward_ns = 5'000 + 7 * count + 1'100 * rank});
  }
  return layers;
}

// The times by a rank's clock that the contract implies: its launches, by bucket, and the end of
// its backward. Each launch adds its overhead to the caller's time.
struct RankTimes {
  std::vector<std::int64_t> launched;
  std::int64_t backward_ended = 0;
};

RankTimes times_of_rank(const std::vector<ChainLayer>& layers, const Plan& plan,
                        std::int64_t launch_overhead_ns) {
  RankTimes times;
  for (const ChainLayer& layer : layers) {
    times.backward_ended += layer.forward_ns;
  }
  for (std::size_t i = layers.size(); i-- > 0;) {
    times.backward_ended += layers[i].backward_ns;
    if (plan[times.launched.size()].back() == i) {
      times.backward_ended += launch_overhead_ns;
      times.launched.push_back(times.backward_ended);
    }
  }
  return times;
}

// The chain: bucket b ends at f_b = max(its launch on the last rank, f_(b-1)) + its cost.
std::int64_t expected_end(Rank& rank, const std::vector<std::int64_t>& elements, const Plan& plan,
                          const std::vector<Payload>& payloads) {
  const std::int64_t overhead = rank.network().network().launch_overhead_ns;
  std::int64_t end = 0;
  for (std::size_t b = 0; b < plan.size(); ++b) {
    for (int other = 0; other < rank.world_size(); ++other) {
      end = std::max(end, times_of_rank(layers_of(other, elements), plan, overhead).launched[b]);
    }
    end += all_reduce_cost(rank, payloads[b].bytes);
  }
  const RankTimes mine = times_of_rank(layers_of(rank.rank(), elements), plan, overhead);
  return std::max(end, mine.backward_ended);
}

// Runs one step of a chain of layers, and returns its duration.
std::int64_t time_of_step(Rank& rank, ChainModel& model, GradientSynchronizer& synchronizer,
                          int step) {
  clear_gradients(model.parameters(), /*to_none=*/step % 2 == 0);
  const std::int64_t start = rank.network().start_step();
  model.loss(step).backward();
  synchronizer.finish();
  return rank.network().step_end() - start;
}

void expect_time_of_chain(Rank& rank, const std::vector<std::int64_t>& elements,
                          std::int64_t cap_bytes) {
  ChainModel model(rank, layers_of(rank.rank(), elements));
  const Plan plan = plan_of(model.parameters(), cap_bytes);
  const auto payloads = payloads_of(plan, model.parameters());
  const auto synchronizer = bucketed(cap_bytes)(tensors_of(model.parameters()), {}, rank.group());
  for (int step = 0; step < 3; ++step) {
    const std::int64_t expected = expected_end(rank, elements, plan, payloads);
    const std::int64_t took = time_of_step(rank, model, *synchronizer, step);
    EXPECT_EQ(took, expected)
        << "virtual ns of step " << step << " with buckets of " << to_string(payloads) << ": by "
        << "the chain of launches " << expected << ", here " << took
        << (took > expected ? " (longer: a launch that is late, a wait within backward, or another "
                              "operation, such as a barrier)"
                            : " (shorter: fewer operations, or fewer bytes)");
  }
}

// overlap = false: backward, then one bucket after another. The clock does not see a wait by
// future: then launches may follow each other immediately.
void expect_time_without_overlap(Rank& rank, const std::vector<std::int64_t>& elements,
                                 std::int64_t cap_bytes) {
  const auto slowest = layers_of(rank.world_size() - 1, elements);
  ChainModel model(rank, layers_of(rank.rank(), elements));
  const Plan plan = plan_of(model.parameters(), cap_bytes);
  const auto payloads = payloads_of(plan, model.parameters());
  const auto synchronizer = bucketed({.cap_bytes = cap_bytes, .overlap = false})(
      tensors_of(model.parameters()), {}, rank.group());
  std::int64_t blocking = times_of_rank(slowest, plan, 0).backward_ended;
  std::int64_t by_futures = blocking;
  std::int64_t launched = blocking;
  for (const Payload& payload : payloads) {
    const std::int64_t overhead = rank.network().network().launch_overhead_ns;
    const std::int64_t cost = all_reduce_cost(rank, payload.bytes);
    blocking += overhead + cost;
    launched += overhead;
    by_futures = std::max(by_futures, launched) + cost;
  }
  rank.recorder().clear();
  const std::int64_t took = time_of_step(rank, model, *synchronizer, 0);
  const auto operations = rank.recorder().operations();
  const bool unseen = std::ranges::any_of(
      operations, [](const RecordedOperation& operation) { return operation.waited < 0; });
  EXPECT_TRUE(took == blocking || (unseen && took == by_futures))
      << "virtual ns of a step with overlap = false and buckets of " << to_string(payloads)
      << ": for backward, then each bucket's launch and all-reduce, one after the other, "
      << blocking << ", here " << took
      << (took < blocking ? " (shorter: launched before backward had ended, or before the bucket "
                            "before it had been waited for)"
                          : " (longer: another operation, such as a barrier)");
}

const GradedTest kStepTime{
    {.name = "step_time_is_the_chain_of_buckets",
     .points = 2,
     .hint = "Bucket b ends at max(its launch on the slowest rank, the end of bucket b-1) + its "
             "cost. Does yours end later? Look for late launches, waits and barriers."},
    [] {
      const std::vector<NetworkModel> networks = {
          {.alpha_ns = 1'000, .beta_ns_per_byte = 0.1},
          {.alpha_ns = 20'000, .beta_ns_per_byte = 2.0, .launch_overhead_ns = 700},
          {.alpha_ns = 0, .beta_ns_per_byte = 30.0, .launch_overhead_ns = 5'000}};
      for (const NetworkModel& network : networks) {
        RankOptions options;
        options.network = network;
        run_worlds(
            {2, 3, 4},
            [](Rank& rank) {
              for (const std::int64_t cap : {1, 4'096, 20'000, 1 << 20}) {
                expect_time_of_chain(rank, {256, 64, 1024, 128, 2048, 512}, cap);
                expect_time_of_chain(rank, {4096, 64, 64, 64, 64, 64, 64, 64}, cap);
                expect_time_without_overlap(rank, {256, 64, 1024, 128, 2048, 512}, cap);
              }
            },
            options);
        if (::testing::Test::HasFailure()) {
          return;
        }
      }
    }};

// The network of the sweep: no latency, an overhead for each launch, and faster than backward,
// since a layer's backward takes longer than the transfer of its bytes.
constexpr std::int64_t kLayers = 64;
constexpr std::int64_t kLayerBytes = 1024;
constexpr double kBeta = 1.0;

// The time of a step beyond forward and backward, with `layers_in_bucket` layers per bucket.
std::int64_t overhead_ns(Rank& rank, std::int64_t layers_in_bucket) {
  constexpr std::int64_t kForward = 100;
  constexpr std::int64_t kBackward = 2'000;
  ChainModel model(rank, std::vector<ChainLayer>(kLayers, {.elements = kLayerBytes / 4,
                                                           .forward_ns = kForward,
                                                           .backward_ns = kBackward}));
  const auto synchronizer =
      bucketed(layers_in_bucket * kLayerBytes)(tensors_of(model.parameters()), {}, rank.group());
  return time_of_step(rank, model, *synchronizer, 0) - kLayers * (kForward + kBackward);
}

std::string list_of(const std::vector<std::int64_t>& overheads) {
  std::string text;
  for (std::size_t i = 0; i < overheads.size(); ++i) {
    text += "\n    cap " + std::to_string(kLayerBytes << i) +
            " bytes: " + std::to_string(overheads[i]) + " ns";
  }
  return text;
}

// Caps of 1, 2, 4 ... 64 layers.
void expect_u_shape(Rank& rank) {
  std::vector<std::int64_t> overheads;
  for (std::int64_t layers = 1; layers <= kLayers; layers *= 2) {
    overheads.push_back(overhead_ns(rank, layers));
  }
  const std::int64_t p = rank.world_size();
  const double w = static_cast<double>(p) / (2.0 * static_cast<double>(p - 1) * kBeta);
  const auto o = static_cast<double>(rank.network().network().launch_overhead_ns);
  const double best_cap = std::sqrt(static_cast<double>(kLayers * kLayerBytes) * w * o);
  const auto lowest = std::ranges::min_element(overheads) - overheads.begin();
  const double steps_from_best =
      std::abs(std::log2(static_cast<double>(kLayerBytes << lowest)) - std::log2(best_cap));
  EXPECT_LE(steps_from_best, 1.0)
      << "the overhead (step end - forward - backward) should be lowest within one step of the "
      << "sweep from b* = sqrt(S w o) = " << best_cap << " bytes; it is:" << list_of(overheads);
  const bool falls =
      std::is_sorted(overheads.begin(), overheads.begin() + lowest + 1, std::greater_equal{});
  const bool rises = std::is_sorted(overheads.begin() + lowest, overheads.end(), std::less_equal{});
  EXPECT_TRUE(falls && rises && overheads.front() > overheads[lowest] &&
              overheads.back() > overheads[lowest])
      << "over the cap the overhead should fall to its minimum and rise after it, a U: small "
      << "buckets pay for launches, large ones end late. It is:" << list_of(overheads);
}

const GradedTest kUShape{
    {.name = "overhead_over_the_cap_is_a_u",
     .points = 1,
     .hint = "Respect every cap, from the smallest to the largest: one launch for each bucket, "
             "during backward, and only the last bucket's transfer after it."},
    [] {
      for (const auto& [world_size, overhead] : {std::pair{2, 300}, {4, 1'000}, {2, 3'000}}) {
        RankOptions options;
        options.network = {
            .alpha_ns = 0, .beta_ns_per_byte = kBeta, .launch_overhead_ns = overhead};
        run_worlds({world_size}, expect_u_shape, options);
        if (::testing::Test::HasFailure()) {
          return;
        }
      }
    }};

// A step of libtorch's own synchronizer on a model of the same shape, after it has rebuilt its
// buckets in the order in which gradients come.
std::int64_t time_of_reducer_step(Rank& rank, const std::vector<ChainLayer>& layers,
                                  std::int64_t cap_bytes) {
  ChainModel model(rank, layers);
  const auto& parameters = model.parameters();
  ReducerPeer peer(tensors_of(parameters), {}, rank.group(),
                   {.first_bucket_bytes = cap_bytes, .cap_bytes = cap_bytes});
  std::int64_t took = 0;
  for (int step = 0; step < 3; ++step) {
    clear_gradients(parameters, /*to_none=*/true);
    peer.before_forward();
    const std::int64_t start = rank.network().start_step();
    const at::Tensor loss = model.loss(step);
    peer.before_backward();
    loss.backward();
    took = rank.network().step_end() - start;
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    EXPECT_TRUE(is_close({"c10d::Reducer's gradient of " + parameters[i].name, rank.world_size()},
                         parameters[i].tensor.grad(), model.mean_gradient(i, 2), 1e-2));
  }
  return took;
}

void expect_no_slower_than_reducer(Rank& rank, std::int64_t cap_bytes) {
  std::vector<ChainLayer> layers;
  for (std::int64_t i = 0; i < 24; ++i) {
    layers.push_back({.elements = 64 * (1 + i * 7 % 5),
                      .forward_ns = 500,
                      .backward_ns = 2'000 + 300 * rank.rank()});
  }
  ChainModel model(rank, layers);
  const auto synchronizer = bucketed(cap_bytes)(tensors_of(model.parameters()), {}, rank.group());
  std::int64_t took = 0;
  for (int step = 0; step < 3; ++step) {
    rank.recorder().clear();
    took = time_of_step(rank, model, *synchronizer, step);
    EXPECT_FALSE(all_reduces(rank.recorder().operations()).empty()) << "nothing was reduced";
  }
  const std::int64_t reducer = time_of_reducer_step(rank, layers, cap_bytes);
  EXPECT_LE(took, reducer) << "virtual ns of a step of 24 layers with a cap of " << cap_bytes
                           << " bytes: " << took << ", and c10d::Reducer's " << reducer
                           << " with the same cap on the same network: where do you lose "
                           << took - reducer << "?";
}

const GradedTest kReducer{
    {.name = "never_slower_than_the_reducer",
     .points = 1,
     .hint = "c10d::Reducer launches a bucket in the hook of its last gradient, and waits when "
             "backward has ended. Given the same cap, what do you do that it does not?"},
    [] {
      for (const NetworkModel& network :
           {NetworkModel{.alpha_ns = 500, .beta_ns_per_byte = 0.5, .launch_overhead_ns = 200},
            NetworkModel{.alpha_ns = 10'000, .beta_ns_per_byte = 8.0}}) {
        RankOptions options;
        options.network = network;
        run_worlds(
            {2, 3},
            [](Rank& rank) {
              for (const std::int64_t cap : {1, 2'000, 8'000, 1 << 20}) {
                expect_no_slower_than_reducer(rank, cap);
              }
            },
            options);
        if (::testing::Test::HasFailure()) {
          return;
        }
      }
    }};

}  // namespace

}  // namespace ddp::testing
