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
    const bool update = seen.kind == EventKind::kFact && seen.text == kUpdate.name;
    return update ? update_ns(seen.number, rank) : of_layers(seen, rank);
  };
}

// `waits_for_all`: all means are awaited before the first update, or each before its own.
Chain chain_of(const std::vector<TrainingOfRank>& ranks, int step, const NetworkModel& network,
               bool waits_for_all) {
  const Buckets buckets = full_buckets_of(ranks[0]);
  const bool overlap = ranks[0].has(kWithOverlap);
  Chain chain(network, ranks.size());
  const auto launched =
      chain.launch_in_backward(ranks, step, layers_of(overlap ? buckets : Buckets()));
  std::vector<std::int64_t> reduced;  // when each bucket's mean is there
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::int64_t chunk = buckets[b].chunk(ranks.size());
    const std::int64_t bytes = buckets[b].bytes(chunk * static_cast<std::int64_t>(ranks.size()));
    reduced.push_back(chain.carry(c10d::OpType::_REDUCE_SCATTER_BASE, bytes,
                                  overlap ? launched[b] : chain.launch()));
    chain.wait(overlap ? 0 : reduced.back());
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::int64_t chunk = buckets[b].chunk(ranks.size());
    chain.wait(waits_for_all ? reduced.back() : reduced[b]);
    chain.compute([&](std::size_t place) { return update_ns(chunk, ranks[place].rank); }, "update");
    const std::int64_t ends = chain.run(c10d::OpType::_ALLGATHER_BASE, buckets[b].bytes(chunk));
    chain.wait(overlap ? 0 : ends);
  }
  chain.wait(chain.network_is_free());
  return chain;
}

Finding wrong_time(const Evidence& evidence, const NetworkModel& network) {
  const auto& ranks = trainings_in(evidence).at(0);
  const ComputeCost cost = cost_of(ranks[0]);
  const VirtualTime time(evidence, network, cost);
  return wrong_times(
      time, cost, ended_steps(ranks[0]),
      [&](int step) {
        return std::vector{chain_of(ranks, step, network, /*waits_for_all=*/true),
                           chain_of(ranks, step, network, /*waits_for_all=*/false)};
      },
      [&](int step, std::int64_t took, const Chain& chain) {
        const auto group = static_cast<int>(ranks[0].number(kGroup).value_or(0));
        return off_the_chain(step, took, chain.now(), "reduce-scatters, updates and all-gathers") +
               first_off(time, step, chain, members_of(evidence.world, group));
      });
}

Finding steps_take_the_chain(const Evidence& evidence) {
  return on_each_network(
      [&](const NetworkModel& network) { return wrong_time(evidence, network); });
}

// What other tests report.
Finding misplaced(const StepOfRank& step) {
  Finding text = each_bucket_once(step);
  return text.empty() && !step.training.has(kWithOverlap) ? after_backward_one_by_one(step) : text;
}

const GradedTest kStepTime{
    {.name = "step_time_is_the_chain_of_buckets",
     .title = "Step time is backward with overlapped buckets",
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
