#include <algorithm>

#include "claims.h"
#include "ddp/virtual_time/virtual_time.h"
#include "grader/chain.h"
#include "grader/grading.h"
#include "grader/training_evidence.h"
#include "scenarios.h"

// How long a use takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

// Ranks with higher numbers are slower.
std::int64_t compute_ns(const Seen& seen, int rank) {
  if (seen.kind != EventKind::kPhase) {
    return 0;
  }
  const bool forward = seen.place.phase == Phase::kForward;
  return forward                                ? 3'000 + 500 * rank
         : seen.place.phase == Phase::kBackward ? 4'000 + 700 * rank
                                                : 0;
}

// A wait by future moves no clock: then no exact time is known.
bool all_waited(const Evidence& evidence, const UseOnRank& use) {
  return std::ranges::all_of(use.launches(), [&](const Seen* launch) {
    return first_of(evidence, use.rank, launch->operation, EventKind::kWait) != nullptr;
  });
}

// The collectives that carry data synchronize the ranks: the slowest rank's computation, and then
// one after the other.
Finding wrong_time(const Evidence& evidence, const Batch& batch, const NetworkModel& network,
                   std::int64_t took) {
  const UseOnRank& slowest = batch.back();
  Chain chain(network, batch.size());
  // Computing first: where it comes between does not change the sum.
  chain.compute([&](std::size_t) {
    return 3'000 + 500 * slowest.rank + slowest.backwards * (4'000 + 700 * slowest.rank);
  });
  Events launches = slowest.forward;
  launches.insert(launches.end(), slowest.backward.begin(), slowest.backward.end());
  for (const Seen* launch : launches) {
    if (launch->bytes > 0) {
      chain.wait(chain.run(launch->type, launch->bytes));
    }
  }
  if (launches.empty()) {
    return describe(batch, slowest) + ": nothing was launched";
  }
  const bool exact =
      std::ranges::all_of(batch, [&](const UseOnRank& use) { return all_waited(evidence, use); });
  const std::int64_t expected = chain.now();
  Finding found = with_times("", batch[0].index, expected, chain, compute_ns);
  if (took == expected || (took < expected && !exact)) {
    return found;
  }
  found.text = describe(batch, slowest) + ": forward and backward took " + duration(took) +
               " of simulated time, expected " + duration(expected) +
               ": computing on the slowest rank, and the collectives one after another" +
               (took > expected ? " (longer: another operation, such as a barrier)"
                                : " (shorter: not waited for?)") +
               "; launched:" + list_of(launches);
  return found;
}

Finding time_is_that_of_the_collectives(const Evidence& evidence) {
  const auto& batches = batches_in(evidence);
  Finding found;
  for (const NetworkModel& network :
       {NetworkModel{.alpha_ns = 1'000, .beta_ns_per_byte = 0.1},
        NetworkModel{.alpha_ns = 20'000, .beta_ns_per_byte = 2.0, .launch_overhead_ns = 700}}) {
    const VirtualTime time(evidence, network, compute_ns);
    for (const Batch& batch : batches) {
      if (!batch[0].training) {
        continue;
      }
      found = wrong_time(evidence, batch, network, time.step_ns(batch[0].index));
      if (!found.empty()) {
        return found;
      }
    }
  }
  return found;
}

// Those in which all ranks go through the same uses, one after another.
std::vector<Scenario> in_order() {
  std::vector<Scenario> all = joined({plain(), upstreams(), shards(), modules()});
  std::erase_if(all, [](const Scenario& scenario) {
    return scenario.world.ranks == 1 || !scenario.world.subgroups.empty();
  });
  return all;
}

const GradedTest kTime{
    {.name = "time_is_that_of_two_collectives_a_layer",
     .title = "Time is that of two collectives per layer",
     .points = 1,
     .hint = "Each layer costs 2(p-1) alpha forward and the same backward, with all-reduces. More? "
             "Look for barriers and other waits.",
     .more = "The expected time is in the failure. The difference, divided by alpha, says how "
             "many messages in a row there are too many: a barrier, a second collective, a "
             "broadcast of running statistics? An all-gather costs half the latency of an "
             "all-reduce, and both are accepted."},
    [] { judge(in_order(), time_is_that_of_the_collectives); }};

}  // namespace

}  // namespace ddp::testing
