#include "support/claim_tools.h"

#include <algorithm>

namespace ddp::testing {

namespace {

// Steps that every rank has ended.
std::vector<int> whole_steps(const std::vector<TrainingOfRank>& ranks) {
  std::vector<int> steps;
  for (const auto& entry : ranks[0].steps) {
    const bool whole = std::ranges::all_of(ranks, [&](const TrainingOfRank& training) {
      const auto found = training.steps.find(entry.first);
      return found != training.steps.end() && found->second.ended;
    });
    if (whole) {
      steps.push_back(entry.first);
    }
  }
  return steps;
}

}  // namespace

std::string layer(std::int64_t index) { return "layer " + std::to_string(index); }

std::string on(const TrainingOfRank& training) { return "rank " + std::to_string(training.rank); }

std::string in(const TrainingOfRank& training, int step) {
  return on(training) + ", step " + std::to_string(step);
}

std::string said(const ::testing::AssertionResult& result) {
  return result ? "" : std::string(result.message());
}

std::vector<const Seen*> ready_outside(const TrainingStep& step) {
  std::vector<const Seen*> ready;
  std::ranges::copy_if(step.ready, std::back_inserter(ready),
                       [](const Seen* seen) { return !seen->place.no_sync; });
  return ready;
}

std::optional<std::size_t> last_ready(const std::vector<const Seen*>& ready,
                                      const std::vector<std::int64_t>& layers) {
  std::size_t last = 0;
  for (const std::int64_t layer : layers) {
    const auto found =
        std::ranges::find(ready, layer, [](const Seen* seen) { return seen->index; });
    if (found == ready.end()) {
      return std::nullopt;
    }
    last = std::max(last, static_cast<std::size_t>(found - ready.begin()));
  }
  return last;
}

std::string first_in_steps(
    const Evidence& evidence,
    const std::function<std::string(const std::vector<TrainingOfRank>&, int step)>& what) {
  for (const auto& [model, ranks] : trainings_in(evidence)) {
    for (const int step : whole_steps(ranks)) {
      if (std::string text = what(ranks, step); !text.empty()) {
        return text;
      }
    }
  }
  return "";
}

std::string first_on_ranks(
    const Evidence& evidence,
    const std::function<std::string(const TrainingOfRank&, const TrainingStep&, int number,
                                    std::size_t ranks)>& check) {
  for (const auto& [model, ranks] : trainings_in(evidence)) {
    for (const TrainingOfRank& training : ranks) {
      for (const auto& [number, step] : training.steps) {
        if (std::string text = check(training, step, number, ranks.size()); !text.empty()) {
          return text;
        }
      }
    }
  }
  return "";
}

std::string first_event(const Evidence& evidence, EventKind kind,
                        const std::function<std::string(const Seen&, int rank)>& describe) {
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind == kind) {
        if (std::string text = describe(seen, static_cast<int>(rank)); !text.empty()) {
          return text;
        }
      }
    }
  }
  return "";
}

}  // namespace ddp::testing
