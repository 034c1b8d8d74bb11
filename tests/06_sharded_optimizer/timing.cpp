#include "claims.h"
#include "ddp/virtual_time/virtual_time.h"
#include "grader/chain.h"
#include "grader/grading.h"
#include "grader/training_scenarios.h"
#include "scenarios.h"

// How long a step takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

std::int64_t update_ns(std::int64_t elements, int rank) {
  return 2'000 + 5 * elements + 300 * rank;
}

ComputeCost cost_of(const TrainingOfRank& training) {
  return [of_layers = layer_times(training)](const Seen& seen, int rank) {
    const bool update = seen.kind == EventKind::kFact && seen.text == "update";
    return update ? update_ns(seen.number, rank) : of_layers(seen, rank);
  };
}

// `waits_for_all`: all means are awaited before the first update, or each before its own.
Chain chain_of(const std::vector<TrainingOfRank>& ranks, int step, const NetworkModel& network,
               bool waits_for_all) {
  const std::vector<Bucket> buckets = buckets_of(ranks[0], ranks.size());
  const bool overlap = ranks[0].others.contains("overlap");
  std::vector<std::vector<std::int64_t>> layers;
  for (const Bucket& bucket : buckets) {
    layers.push_back(bucket.layers);
  }
  Chain chain(network, ranks.size());
  const auto launched =
      chain.launch_in_backward(ranks, step, overlap ? layers : decltype(layers)());
  std::vector<std::int64_t> reduced;  // when each bucket's mean is there
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const auto bytes = buckets[b].chunk_bytes() * static_cast<std::int64_t>(ranks.size());
    reduced.push_back(chain.carry(c10d::OpType::_REDUCE_SCATTER_BASE, bytes,
                                  overlap ? launched[b] : chain.launch()));
    chain.wait(overlap ? 0 : reduced.back());
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    chain.wait(waits_for_all ? reduced.back() : reduced[b]);
    chain.compute([&](std::size_t place) { return update_ns(buckets[b].chunk, ranks[place].rank); },
                  "update");
    const std::int64_t ends = chain.run(c10d::OpType::_ALLGATHER_BASE, buckets[b].chunk_bytes());
    chain.wait(overlap ? 0 : ends);
  }
  chain.wait(chain.network_is_free());
  return chain;
}

Finding wrong_time(const Evidence& evidence, const NetworkModel& network) {
  const auto& ranks = trainings_in(evidence).at(0);
  const ComputeCost cost = cost_of(ranks[0]);
  const VirtualTime time(evidence, network, cost);
  Finding found;
  for (const auto& [number, step] : ranks[0].steps) {
    if (!step.ended) {
      continue;
    }
    Chain chain = chain_of(ranks, number, network, /*waits_for_all=*/true);
    const std::int64_t took = time.step_ns(number);
    if (Chain early = chain_of(ranks, number, network, /*waits_for_all=*/false);
        took == early.now()) {
      chain = std::move(early);
    }
    if (took != chain.now()) {
      found = off_the_chain(number, took, chain.now(), "reduce-scatters, updates and all-gathers") +
              first_off(time, number, chain, members_of(evidence.world, ranks[0].group));
    }
    found = with_times(std::move(found), number, chain.now(), chain, cost);
    if (!found.empty()) {
      break;
    }
  }
  return found;
}

Finding steps_take_the_chain(const Evidence& evidence) {
  return on_each_network(
      [&](const NetworkModel& network) { return wrong_time(evidence, network); });
}

// What other tests report.
Finding misplaced(const StepOfRank& step) {
  Finding text = each_bucket_once(step);
  return text.empty() && !step.overlaps() ? after_backward_one_by_one(step) : text;
}

const GradedTest kStepTime{
    {.name = "step_time_is_the_chain_of_buckets",
     .points = 1,
     .hint =
         "Reduce-scatters end as all-reduces do in stage 03, at half the cost. Then each update is "
         "followed by its all-gather, beside which the next update runs.",
     .more = "TRACE=step.json draws it (https://ui.perfetto.dev). Make a table: for each "
             "bucket the launch, start and end of its reduce-scatter, the end of its update, "
             "the start and end of its all-gather. Which of yours is later than the handout's "
             "formula, and what was waited for?"},
    [] { judge(timed(), steps_take_the_chain, in_each_step(misplaced)); }};

}  // namespace

}  // namespace ddp::testing
