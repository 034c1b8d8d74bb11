#include "grader/chain.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "ddp/backends/operation_backend.h"

namespace ddp::testing {

void Chain::compute(const std::function<std::int64_t(std::size_t place)>& ns,
                    const std::string& name) {
  for (std::size_t place = 0; place < clocks_.size(); ++place) {
    if (!name.empty()) {
      moments_[place].push_back({name, clocks_[place]});
    }
    clocks_[place] += ns(place);
  }
}

std::int64_t Chain::launch() {
  compute([&](std::size_t) { return network_.launch_overhead_ns; });
  return now();
}

std::int64_t Chain::carry(c10d::OpType type, std::int64_t bytes, std::int64_t launched) {
  const std::int64_t begin = std::max(free_, launched);
  free_ = begin + cost_ns(network_, type, bytes, static_cast<int>(clocks_.size()));
  carried_.push_back({.kind = SpanKind::kCommunication,
                      .name = operation_name(type),
                      .begin_ns = begin,
                      .end_ns = free_,
                      .launched_ns = launched,
                      .bytes = bytes});
  return free_;
}

void Chain::wait(std::int64_t until) {
  for (std::int64_t& clock : clocks_) {
    clock = std::max(clock, until);
  }
}

std::vector<std::int64_t> Chain::launch_in_backward(
    const std::vector<TrainingOfRank>& ranks, int step,
    const std::vector<std::vector<std::int64_t>>& layers_of_buckets) {
  std::vector<std::int64_t> launched(layers_of_buckets.size());
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    const TrainingOfRank& training = ranks[place];
    std::int64_t& clock = clocks_[place];
    clock += forward_ns(training);
    std::set<std::int64_t> ready;
    std::size_t next = 0;
    for (const Seen* seen : ready_in(training.steps.at(step))) {
      moments_[place].push_back({"backward layer " + std::to_string(seen->index), clock});
      clock += backward_ns(training, seen->index, training.rank);
      ready.insert(seen->index);
      while (next < launched.size() &&
             std::ranges::all_of(layers_of_buckets[next],
                                 [&](std::int64_t layer) { return ready.contains(layer); })) {
        clock += network_.launch_overhead_ns;
        launched[next] = std::max(launched[next], clock);
        ++next;
      }
    }
  }
  return launched;
}

std::int64_t Chain::now() const { return std::ranges::max(clocks_); }

Finding with_times(Finding finding, int step, std::int64_t expected, const Chain& chain,
                   const ComputeCost& cost) {
  finding.times = Finding::Times{step, expected, chain.network(), cost, chain.carried()};
  return finding;
}

Finding wrong_times(
    const VirtualTime& time, const ComputeCost& cost, const std::vector<int>& steps,
    const std::function<std::vector<Chain>(int step)>& chains,
    const std::function<std::string(int step, std::int64_t took, const Chain& chain)>& off) {
  Finding found;
  for (const int step : steps) {
    const std::vector<Chain> possible = chains(step);
    const std::int64_t took = time.step_ns(step);
    const Chain* chain = &possible.front();
    for (const Chain& other : possible) {
      chain = other.now() == took ? &other : chain;
    }
    const std::string wrong = chain->now() == took ? "" : off(step, took, *chain);
    found = with_times(wrong, step, chain->now(), *chain, cost);
    if (!found.empty()) {
      break;
    }
  }
  return found;
}

std::vector<int> ended_steps(const TrainingOfRank& training) {
  std::vector<int> steps;
  for (const auto& [number, step] : training.steps) {
    if (has_ended(step)) {
      steps.push_back(number);
    }
  }
  return steps;
}

ComputeCost compute_cost(std::int64_t forward_ns,
                         std::function<std::int64_t(std::int64_t layer, int rank)> backward_ns) {
  return [forward_ns, backward_ns = std::move(backward_ns)](const Seen& seen,
                                                            int rank) -> std::int64_t {
    const bool forward = seen.kind == EventKind::kPhase && seen.place.phase == Phase::kForward;
    return seen.kind == EventKind::kReady ? backward_ns(seen.index, rank)
           : forward                      ? forward_ns
                                          : 0;
  };
}

std::int64_t forward_ns(const TrainingOfRank& training) {
  std::int64_t ns = 0;
  for (const auto& [layer, parameter] : training[kParameter]) {
    ns += 3'000 + parameter.numel();
  }
  return ns;
}

std::int64_t backward_ns(const TrainingOfRank& training, std::int64_t layer, int rank) {
  return 5'000 + 7 * training[kParameter].at(layer).numel() + 1'100 * rank;
}

ComputeCost layer_times(const TrainingOfRank& training) {
  return compute_cost(forward_ns(training), [&training](std::int64_t layer, int rank) {
    return backward_ns(training, layer, rank);
  });
}

Finding on_each_network(const std::function<Finding(const NetworkModel& network)>& check) {
  Finding last;
  for (const NetworkModel& network :
       {NetworkModel{.alpha_ns = 1'000, .beta_ns_per_byte = 0.1},
        NetworkModel{.alpha_ns = 20'000, .beta_ns_per_byte = 2.0, .launch_overhead_ns = 700},
        NetworkModel{.alpha_ns = 0, .beta_ns_per_byte = 30.0, .launch_overhead_ns = 5'000}}) {
    last = check(network);
    if (!last.empty()) {
      break;
    }
  }
  return last;
}

std::string first_off(const VirtualTime& time, int step, const Chain& chain,
                      const std::vector<int>& members) {
  std::string text;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (std::size_t place = 0; place < members.size(); ++place) {
    const std::vector<Chain::Moment>& moments = chain.moments(place);
    std::size_t next = 0;
    for (const Span& span : time.spans(members[place])) {
      const std::int64_t begin = span.begin_ns - time.step(step).begin;
      if (next == moments.size() || begin < 0 || span.name != moments[next].name) {
        continue;
      }
      const Chain::Moment& due = moments[next++];
      if (begin != due.begin_ns && due.begin_ns < first) {
        first = due.begin_ns;
        text = "; the first thing out of place: " + due.name + " on rank " +
               std::to_string(members[place]) + " begins at " + duration(begin) +
               " of the step, expected " + duration(due.begin_ns);
      }
    }
  }
  return text;
}

std::string off_the_chain(int step, std::int64_t took, std::int64_t expected,
                          const std::string& chain, const std::string& longer) {
  return "step " + std::to_string(step) + " took " + duration(took) +
         " of simulated time; the chain of " + chain + " takes " + duration(expected) +
         (took > expected ? " (longer: " + longer + ")"
                          : " (shorter: fewer operations, fewer bytes, or launched too early)");
}

}  // namespace ddp::testing
