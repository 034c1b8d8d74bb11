#include <algorithm>
#include <cmath>
#include <map>

#include "bodies.h"
#include "buckets.h"
#include "ddp/peers/reducer_peer.h"
#include "ddp/referee/client.h"
#include "ddp/simulation/virtual_time.h"
#include "support/grading.h"
#include "support/layer_times.h"
#include "support/training_bodies.h"

// How long a step takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

// The moments by a rank's clock that the contract implies. Each launch adds its overhead.
struct RankTimes {
  std::vector<std::int64_t> launched;  // by bucket
  std::int64_t ended = 0;
};

RankTimes times_of(const TrainingOfRank& training, const TrainingStep& step, bool overlap,
                   std::int64_t overhead_ns) {
  const std::vector<Bucket> buckets = buckets_of(training);
  RankTimes times;
  times.ended = forward_ns(training);
  std::map<std::int64_t, bool> ready;
  const auto launch_complete = [&] {
    while (times.launched.size() < buckets.size() &&
           std::ranges::all_of(buckets[times.launched.size()].layers,
                               [&](std::int64_t layer) { return ready[layer]; })) {
      times.ended += overhead_ns;
      times.launched.push_back(times.ended);
    }
  };
  for (const Seen* seen : step.ready) {
    times.ended += backward_ns(training, seen->index, training.rank);
    ready[seen->index] = true;
    if (overlap) {
      launch_complete();
    }
  }
  return times;
}

// The chain: bucket b ends at f_b = max(its launch on the last rank, f_(b-1)) + its cost.
std::int64_t chain_of(const std::vector<TrainingOfRank>& ranks, int step,
                      const NetworkModel& network) {
  const std::vector<Bucket> buckets = buckets_of(ranks[0]);
  std::vector<std::int64_t> launched(buckets.size());
  std::int64_t ended = 0;
  for (const TrainingOfRank& training : ranks) {
    const RankTimes times =
        times_of(training, training.steps.at(step), true, network.launch_overhead_ns);
    for (std::size_t b = 0; b < times.launched.size(); ++b) {
      launched[b] = std::max(launched[b], times.launched[b]);
    }
    ended = std::max(ended, times.ended);
  }
  std::int64_t end = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    end = std::max(end, launched[b]) + cost_ns(network, c10d::OpType::ALLREDUCE, buckets[b].bytes,
                                               static_cast<int>(ranks.size()));
  }
  return std::max(end, ended);
}

// Without overlap: backward, then one bucket after another. No clock sees a wait by future: then
// launches may follow each other at once.
struct Blocking {
  std::int64_t by_waits = 0;
  std::int64_t by_futures = 0;
};

Blocking blocking_of(const std::vector<TrainingOfRank>& ranks, int step,
                     const NetworkModel& network) {
  Blocking times;
  for (const TrainingOfRank& training : ranks) {
    times.by_waits =
        std::max(times.by_waits, times_of(training, training.steps.at(step), false, 0).ended);
  }
  times.by_futures = times.by_waits;
  std::int64_t launched = times.by_waits;
  for (const Bucket& bucket : buckets_of(ranks[0])) {
    const std::int64_t cost =
        cost_ns(network, c10d::OpType::ALLREDUCE, bucket.bytes, static_cast<int>(ranks.size()));
    launched += network.launch_overhead_ns;
    times.by_waits += network.launch_overhead_ns + cost;
    times.by_futures = std::max(times.by_futures, launched) + cost;
  }
  return times;
}

std::string wrong_time(const Evidence& evidence, const NetworkModel& network) {
  const auto& ranks = trainings_in(evidence).at(0);
  const VirtualTime time(evidence, network, layer_times(ranks[0]));
  const bool overlap = ranks[0].others.contains("overlap");
  for (const auto& [number, step] : ranks[0].steps) {
    if (!step.ended) {
      continue;
    }
    const Blocking blocking = blocking_of(ranks, number, network);
    const std::int64_t expected = overlap ? chain_of(ranks, number, network) : blocking.by_waits;
    const std::int64_t took = time.step_ns(number);
    const bool futures = !overlap && took == blocking.by_futures;
    if (took != expected && !futures) {
      return off_the_chain(
          number, took, expected, "launches",
          "a launch that is late, a wait within backward, or another operation, such as a barrier");
    }
  }
  return "";
}

std::string steps_take_the_chain(const Evidence& evidence) {
  return on_each_network(
      [&](const NetworkModel& network) { return wrong_time(evidence, network); });
}

const GradedTest kStepTime{
    {.name = "step_time_is_the_chain_of_buckets",
     .points = 2,
     .hint = "Bucket b ends at max(its launch on the slowest rank, the end of bucket b-1) + its "
             "cost. Does yours end later? Look for late launches, waits and barriers.",
     .more = "Make a table like that of handout 02's miniature for the failing case: ready, "
             "start, cost and end of each bucket. The first end that differs tells: later than "
             "its last gradient, or later than the bucket before? With overlap = false the "
             "buckets follow each other after backward, and each launch waits for the one before."},
    [] { judge(timed(), steps_take_the_chain, plan_is_wrong); }};

}  // namespace

}  // namespace ddp::testing
