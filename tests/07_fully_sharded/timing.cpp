#include <algorithm>
#include <map>
#include <numeric>

#include "claims.h"
#include "ddp/virtual_time/virtual_time.h"
#include "grader/chain.h"
#include "grader/grading.h"

// How long a step takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

std::int64_t compute_ns(std::int64_t unit, bool backward, int rank) {
  const std::int64_t forward = 9'000 + 4'000 * unit;
  return (backward ? 2 : 1) * forward + 700 * rank;
}

std::int64_t cost_of(const Seen& seen, int rank) {
  const bool backward = seen.text == kBackward.name;
  return seen.kind == EventKind::kFact && (backward || seen.text == kForward.name)
             ? compute_ns(seen.index, backward, rank)
             : 0;
}

// A reduce-scatter is waited for right before the next one, or no earlier than in finish().
Chain chain_of(const Evidence& evidence, int step, const NetworkModel& network,
               bool waits_for_the_one_before) {
  const Case& one = case_of(evidence);
  const std::vector<int> members = members_of(evidence.world, one.group);
  Chain chain(network, members.size());
  std::int64_t reduced = 0;
  std::map<std::size_t, std::int64_t> gathered;
  const Deeds deeds = expected_deeds(one, step);
  for (const Deed& deed : deeds) {
    if (deed.kind == Deed::Kind::kGather) {
      gathered[deed.unit] =
          chain.run(c10d::OpType::_ALLGATHER_BASE, bytes_of(one, deed.unit).shard);
    } else if (deed.kind == Deed::Kind::kReduce) {
      chain.wait(waits_for_the_one_before ? reduced : 0);
      reduced = chain.run(c10d::OpType::_REDUCE_SCATTER_BASE, bytes_of(one, deed.unit).padded);
    } else {
      chain.wait(gathered[deed.unit]);
      const auto unit = static_cast<std::int64_t>(deed.unit);
      const bool backward = deed.kind == Deed::Kind::kBackward;
      chain.compute([&](std::size_t place) { return compute_ns(unit, backward, members[place]); },
                    (backward ? "backward " : "forward ") + std::to_string(unit));
    }
  }
  chain.wait(std::max(reduced, chain.network_is_free()));
  return chain;
}

Finding wrong_time(const Evidence& evidence, const NetworkModel& network) {
  const Case& one = case_of(evidence);
  const ComputeCost cost = cost_of;
  const VirtualTime time(evidence, network, cost);
  std::vector<int> steps(one.steps.size());
  std::iota(steps.begin(), steps.end(), 0);
  return wrong_times(
      time, cost, steps,
      [&](int step) {
        return std::vector{chain_of(evidence, step, network, /*waits_for_the_one_before=*/true),
                           chain_of(evidence, step, network, /*waits_for_the_one_before=*/false)};
      },
      [&](int step, std::int64_t took, const Chain& chain) {
        return off_the_chain(step, took, chain.now(), "gathers, units and reduce-scatters") +
               first_off(time, step, chain, members_of(evidence.world, one.group));
      });
}

// Layers that take time, with several units gathered ahead. One rank need not launch.
bool is_timed(const Case& one) {
  return !accumulates(one) && !clips(one) && is_determined(one) && !gathers_in_vain(one) &&
         one.ranks > 1 && !one.another;
}

Finding steps_take_the_chain(const Evidence& evidence) {
  return on_each_network(
      [&](const NetworkModel& network) { return wrong_time(evidence, network); });
}

const GradedTest kStepTime{
    {.name = "step_time_is_the_chain_of_units",
     .title = "Step time is that of overlapped units",
     .points = 2,
     .hint =
         "Without prefetch a step is the sum of gathers and units; with it a unit's gather lasts "
         "while the unit before it computes, and only what is longer is waited for.",
     .more = "TRACE=step.json draws it (https://ui.perfetto.dev). Make a table: for each "
             "gather its launch, start and end; for each unit when its parameters are there "
             "and when it begins. Where is yours later? Usual: waiting for all gathers and not"
             " for the one that is needed, launching ahead after the wait, waiting for a "
             "reduce-scatter at once."},
    [] {
      judge(scenarios_of_cases(is_timed), steps_take_the_chain,
            all_of({nothing_else_is_launched, each_use_is_gathered, each_gradient_is_reduced}));
    }};

}  // namespace

}  // namespace ddp::testing
