#include <algorithm>
#include <map>

#include "claims.h"
#include "ddp/simulation/virtual_time.h"
#include "support/grading.h"
#include "support/layer_times.h"

// How long a step takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

std::int64_t compute_ns(std::int64_t unit, bool backward, int rank) {
  const std::int64_t forward = 9'000 + 4'000 * unit;
  return (backward ? 2 : 1) * forward + 700 * rank;
}

std::int64_t cost_of(const Seen& seen, int rank) {
  const bool backward = seen.text == "backward";
  return seen.kind == EventKind::kFact && (backward || seen.text == "forward")
             ? compute_ns(seen.index, backward, rank)
             : 0;
}

// The moments that the header implies, of all ranks' clocks and the network.
class Chain {
 public:
  Chain(const Evidence& evidence, const NetworkModel& network)
      : case_(case_of(evidence)),
        network_(network),
        members_(members_of(evidence.world, case_.group)),
        clock_(members_.size()) {}

  std::int64_t end(int step) {
    const Deeds deeds = expected_deeds(case_, step);
    for (const Deed& deed : deeds) {
      play(deed);
    }
    wait(reduced_);
    return std::max(std::ranges::max(clock_), free_);
  }

  /// A reduce-scatter is waited for right before the next one; or no earlier than in finish().
  bool waits_for_the_one_before = true;

  std::map<int, std::vector<Moment>> moments;  // by rank

 private:
  void play(const Deed& deed) {
    const auto unit = static_cast<std::int64_t>(deed.unit);
    if (deed.kind == Deed::Kind::kGather) {
      gathered_[deed.unit] =
          launch(c10d::OpType::_ALLGATHER_BASE, bytes_of(case_, deed.unit).shard);
    } else if (deed.kind == Deed::Kind::kReduce) {
      wait(waits_for_the_one_before ? reduced_ : 0);
      reduced_ = launch(c10d::OpType::_REDUCE_SCATTER_BASE, bytes_of(case_, deed.unit).padded);
    } else {
      wait(gathered_[deed.unit]);
      const bool backward = deed.kind == Deed::Kind::kBackward;
      for (std::size_t i = 0; i < members_.size(); ++i) {
        moments[members_[i]].push_back(
            {(backward ? "backward " : "forward ") + std::to_string(unit), clock_[i]});
        clock_[i] += compute_ns(unit, backward, members_[i]);
      }
    }
  }

  // When it is done.
  std::int64_t launch(c10d::OpType type, std::int64_t bytes) {
    for (std::int64_t& clock : clock_) {
      clock += network_.launch_overhead_ns;
    }
    free_ = std::max(free_, std::ranges::max(clock_)) +
            cost_ns(network_, type, bytes, static_cast<int>(members_.size()));
    return free_;
  }

  void wait(std::int64_t until) {
    for (std::int64_t& clock : clock_) {
      clock = std::max(clock, until);
    }
  }

  const Case& case_;
  const NetworkModel& network_;
  const std::vector<int> members_;
  std::vector<std::int64_t> clock_;
  std::int64_t free_ = 0;  // when the network is done
  std::int64_t reduced_ = 0;
  std::map<std::size_t, std::int64_t> gathered_;
};

std::string wrong_time(const Evidence& evidence, const NetworkModel& network) {
  const Case& one = case_of(evidence);
  const ComputeCost cost = cost_of;
  const VirtualTime time(evidence, network, cost);
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    const auto step = static_cast<int>(i);
    Chain early(evidence, network);
    Chain late(evidence, network);
    late.waits_for_the_one_before = false;
    const std::int64_t expected = early.end(step);
    const std::int64_t took = time.step_ns(step);
    if (took != expected && took != late.end(step)) {
      return off_the_chain(step, took, expected, "gathers, units and reduce-scatters") +
             first_off(time, step, early.moments);
    }
  }
  return "";
}

// Layers that take time, with several units gathered ahead. One rank need not launch.
bool is_timed(const Case& one) {
  return !accumulates(one) && !clips(one) && is_determined(one) && !gathers_in_vain(one) &&
         one.ranks > 1;
}

std::string steps_take_the_chain(const Evidence& evidence) {
  return on_each_network(
      [&](const NetworkModel& network) { return wrong_time(evidence, network); });
}

const GradedTest kStepTime{
    {.name = "step_time_is_the_chain_of_units",
     .points = 2,
     .hint =
         "Without prefetch a step is the sum of gathers and units; with it a unit's gather lasts "
         "while the unit before it computes, and only what is longer is waited for."},
    [] {
      judge(bodies_of_cases(is_timed), steps_take_the_chain,
            all_of({nothing_else_is_launched, each_use_is_gathered, each_gradient_is_reduced}));
    }};

}  // namespace

}  // namespace ddp::testing
