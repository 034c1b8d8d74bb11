#include "support/layer_times.h"

#include <limits>
#include <utility>

namespace ddp::testing {

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
  for (const auto& [layer, parameter] : training.parameter) {
    ns += 3'000 + parameter.numel();
  }
  return ns;
}

std::int64_t backward_ns(const TrainingOfRank& training, std::int64_t layer, int rank) {
  return 5'000 + 7 * training.parameter.at(layer).numel() + 1'100 * rank;
}

ComputeCost layer_times(const TrainingOfRank& training) {
  return compute_cost(forward_ns(training), [&training](std::int64_t layer, int rank) {
    return backward_ns(training, layer, rank);
  });
}

std::string on_each_network(const std::function<std::string(const NetworkModel& network)>& check) {
  for (const NetworkModel& network :
       {NetworkModel{.alpha_ns = 1'000, .beta_ns_per_byte = 0.1},
        NetworkModel{.alpha_ns = 20'000, .beta_ns_per_byte = 2.0, .launch_overhead_ns = 700},
        NetworkModel{.alpha_ns = 0, .beta_ns_per_byte = 30.0, .launch_overhead_ns = 5'000}}) {
    if (std::string text = check(network); !text.empty()) {
      return text;
    }
  }
  return "";
}

std::string first_off(const VirtualTime& time, int step,
                      const std::map<int, std::vector<Moment>>& by_rank) {
  std::string text;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const auto& [rank, moments] : by_rank) {
    std::size_t next = 0;
    for (const Span& span : time.spans(rank)) {
      const std::int64_t begin = span.begin_ns - time.step(step).begin;
      if (next == moments.size() || begin < 0 || span.name != moments[next].name) {
        continue;
      }
      const Moment& due = moments[next++];
      if (begin != due.begin_ns && due.begin_ns < first) {
        first = due.begin_ns;
        text = "; first off it is " + due.name + " on rank " + std::to_string(rank) +
               ", which begins at " + std::to_string(begin) + " of the step, and should at " +
               std::to_string(due.begin_ns);
      }
    }
  }
  return text;
}

std::string off_the_chain(int step, std::int64_t took, std::int64_t expected,
                          const std::string& chain, const std::string& longer) {
  return "step " + std::to_string(step) + " took " + std::to_string(took) +
         " virtual ns, and by the chain of " + chain + " it takes " + std::to_string(expected) +
         (took > expected ? " (longer: " + longer + ")"
                          : " (shorter: fewer operations, fewer bytes, or launched too early)");
}

}  // namespace ddp::testing
