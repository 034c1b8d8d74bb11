#include <algorithm>
#include <map>

#include "bodies.h"
#include "claims.h"
#include "ddp/simulation/virtual_time.h"
#include "support/grading.h"
#include "support/layer_times.h"
#include "support/training_bodies.h"

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

// The moments that the contract implies, all ranks' clocks and the network's.
class Chain {
 public:
  Chain(const std::vector<TrainingOfRank>& ranks, int step, const NetworkModel& network)
      : ranks_(ranks),
        step_(step),
        network_(network),
        buckets_(buckets_of(ranks[0], ranks.size())),
        overlap_(ranks[0].others.contains("overlap")),
        clock_(ranks.size()) {}

  std::int64_t end() {
    backward();
    std::vector<std::int64_t> reduced = launched_;  // when each bucket's mean is there
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (!overlap_) {
        reduced[b] = launch();
      }
      free_ = std::max(free_, reduced[b]) + cost(c10d::OpType::_REDUCE_SCATTER_BASE, b);
      reduced[b] = free_;
      if (!overlap_) {
        wait(free_);
      }
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      wait(overlap_ ? reduced[waited(b)] : 0);
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        moments[ranks_[r].rank].push_back({"update", clock_[r]});
        clock_[r] += update_ns(buckets_[b].chunk, ranks_[r].rank);
      }
      free_ = std::max(free_, launch()) + cost(c10d::OpType::_ALLGATHER_BASE, b);
      if (!overlap_) {
        wait(free_);
      }
    }
    wait(free_);
    return std::ranges::max(clock_);
  }

  /// All means are awaited before the first update, or each before its own.
  bool waits_for_all = true;

  std::map<int, std::vector<Moment>> moments;  // by rank

 private:
  std::size_t waited(std::size_t bucket) const {
    return waits_for_all ? buckets_.size() - 1 : bucket;
  }

  // When each bucket was launched by the last rank.
  void backward() {
    launched_.assign(buckets_.size(), 0);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      clock_[r] = forward_ns(ranks_[r]);
      std::map<std::int64_t, bool> ready;
      std::size_t next = 0;
      for (const Seen* seen : ranks_[r].steps.at(step_).ready) {
        moments[ranks_[r].rank].push_back(
            {"backward layer " + std::to_string(seen->index), clock_[r]});
        clock_[r] += backward_ns(ranks_[r], seen->index, ranks_[r].rank);
        ready[seen->index] = true;
        while (overlap_ && next < buckets_.size() &&
               std::ranges::all_of(buckets_[next].layers, [&](auto own) { return ready[own]; })) {
          clock_[r] += network_.launch_overhead_ns;
          launched_[next] = std::max(launched_[next], clock_[r]);
          ++next;
        }
      }
    }
  }

  // All ranks launch; when the last one has.
  std::int64_t launch() {
    for (std::int64_t& clock : clock_) {
      clock += network_.launch_overhead_ns;
    }
    return std::ranges::max(clock_);
  }

  void wait(std::int64_t until) {
    for (std::int64_t& clock : clock_) {
      clock = std::max(clock, until);
    }
  }

  std::int64_t cost(c10d::OpType type, std::size_t bucket) const {
    const bool reduces = type == c10d::OpType::_REDUCE_SCATTER_BASE;
    const auto chunks = static_cast<std::int64_t>(reduces ? ranks_.size() : 1);
    return cost_ns(network_, type, buckets_[bucket].chunk_bytes() * chunks,
                   static_cast<int>(ranks_.size()));
  }

  const std::vector<TrainingOfRank>& ranks_;
  const int step_;
  const NetworkModel& network_;
  const std::vector<Bucket> buckets_;
  const bool overlap_;
  std::vector<std::int64_t> clock_;     // by rank
  std::vector<std::int64_t> launched_;  // by bucket
  std::int64_t free_ = 0;               // when the network is done
};

std::string wrong_time(const Evidence& evidence, const NetworkModel& network) {
  const auto& ranks = trainings_in(evidence).at(0);
  const VirtualTime time(evidence, network, cost_of(ranks[0]));
  for (const auto& [number, step] : ranks[0].steps) {
    if (!step.ended) {
      continue;
    }
    Chain late(ranks, number, network);
    Chain early(ranks, number, network);
    early.waits_for_all = false;
    const std::int64_t expected = late.end();
    const std::int64_t took = time.step_ns(number);
    if (took != expected && took != early.end()) {
      return off_the_chain(number, took, expected, "reduce-scatters, updates and all-gathers") +
             first_off(time, number, late.moments);
    }
  }
  return "";
}

std::string steps_take_the_chain(const Evidence& evidence) {
  return on_each_network(
      [&](const NetworkModel& network) { return wrong_time(evidence, network); });
}

// What other tests report.
std::string misplaced(const StepOfRank& step) {
  std::string text = each_bucket_once(step);
  return text.empty() && !step.overlaps() ? after_backward_one_by_one(step) : text;
}

const GradedTest kStepTime{
    {.name = "step_time_is_the_chain_of_buckets",
     .points = 1,
     .hint =
         "Reduce-scatters end as all-reduces do in stage 03, at half the cost. Then each update is "
         "followed by its all-gather, beside which the next update runs."},
    [] { judge(timed(), steps_take_the_chain, in_each_step(misplaced)); }};

}  // namespace

}  // namespace ddp::testing
