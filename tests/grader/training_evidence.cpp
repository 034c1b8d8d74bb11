#include "grader/training_evidence.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace ddp::testing {

namespace {

// The gradients that backward computed outside NoSync, in order.
Events ready_outside(const TrainingStep& step) {
  Events ready = ready_in(step);
  std::erase_if(ready, [](const Seen* seen) { return seen->place.no_sync; });
  return ready;
}

// The place in `ready` of the last of these layers' gradients; nothing if one never came.
std::optional<std::size_t> last_ready(const Events& ready,
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

}  // namespace

const Parts& trainings_in(const Evidence& evidence) {
  return sorted_once<Parts>(evidence, [](const Evidence& all) {
    return parts_of(
        all, [](const Seen& seen) { return seen.place.model; },
        [](const Said& training) { return !training[kStart].empty(); });
  });
}

std::set<std::int64_t> trainable(const TrainingOfRank& training) {
  std::set<std::int64_t> layers, told;
  for (const Seen* fact : training[kTrainable]) {
    require_once(told.insert(fact->index).second, kTrainable.name);
    if (fact->number != 0) {
      layers.insert(fact->index);
    }
  }
  return layers;
}

std::vector<std::int64_t> listed(const TrainingOfRank& training) {
  std::vector<std::int64_t> layers;
  std::ranges::transform(training[kListed], std::back_inserter(layers), &Seen::number);
  return layers;
}

Events ready_in(const TrainingStep& step) {
  Events ready = step.of(EventKind::kReady);
  if (const Seen* none = step.last(kNoGradients)) {
    std::erase_if(ready, [&](const Seen* seen) { return seen->order < none->order; });
  }
  return ready;
}

std::vector<int> whole_steps(const std::vector<TrainingOfRank>& ranks) {
  std::vector<int> steps;
  for (const auto& entry : ranks[0].steps) {
    const bool whole = std::ranges::all_of(ranks, [&](const TrainingOfRank& training) {
      const auto found = training.steps.find(entry.first);
      return found != training.steps.end() && has_ended(found->second);
    });
    if (whole) {
      steps.push_back(entry.first);
    }
  }
  return steps;
}

bool has_ended(const TrainingStep& step) { return !step[kGradient].empty(); }

std::string list_of(const Events& launches, const std::function<std::string(const Seen&)>& end) {
  constexpr std::size_t kShown = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(launches.size(), kShown); ++i) {
    text += "\n    " + describe_operation(*launches[i]) + end(*launches[i]);
  }
  if (launches.size() > kShown) {
    text += "\n    and " + std::to_string(launches.size() - kShown) + " more";
  }
  return text.empty() ? " nothing" : text;
}

std::string layer(std::int64_t index) { return "layer " + std::to_string(index); }

std::string in(const TrainingOfRank& training, int step) {
  return on(training.rank) + ", step " + std::to_string(step);
}

std::vector<Turn> turns_of(const TrainingStep& step,
                           const std::vector<std::vector<std::int64_t>>& layers_of_buckets) {
  const Events ready = ready_outside(step);
  std::vector<Turn> turns;
  std::size_t due = 0;  // the place in `ready` of the last gradient of all buckets so far
  for (const std::vector<std::int64_t>& layers : layers_of_buckets) {
    const auto last = last_ready(ready, layers);
    due = std::max(due, last.value_or(ready.size()));
    Turn& turn = turns.emplace_back();
    if (last && *last < ready.size()) {
      turn.complete = ready[*last];
    }
    if (due < ready.size()) {
      turn.due = ready[due];
      turn.next = due + 1 < ready.size() ? ready[due + 1] : step.last(kGoesOn);
    }
  }
  return turns;
}

std::string late_for(const Turn& turn, const Seen& launch) {
  if (turn.due == nullptr) {
    return "";
  }
  if (launch.place.phase == Phase::kFinish) {
    return "the end of backward";
  }
  if (turn.next == nullptr || launch.order < turn.next->order) {
    return "";
  }
  return turn.next->kind == EventKind::kReady ? "that of " + layer(turn.next->index)
                                              : "backward had gone on";
}

std::string to_string(const Payload& payload) {
  return std::to_string(payload.elements) + " " + dtype_name(payload.dtype);
}

bool take(std::vector<Payload>& payloads, const Payload& payload) {
  const auto found = std::ranges::find(payloads, payload);
  if (found == payloads.end()) {
    return false;
  }
  payloads.erase(found);
  return true;
}

const Seen* first_of(const Evidence& evidence, int rank, std::int64_t operation, EventKind kind) {
  const auto found = std::ranges::find_if(evidence.of[rank], [&](const Seen& seen) {
    return seen.kind == kind && seen.operation == operation;
  });
  return found == evidence.of[rank].end() ? nullptr : &*found;
}

const Seen* last_in_step(const Evidence& evidence, int rank, int step) {
  const SeenList& said = evidence.of[rank];
  const auto found = std::find_if(said.rbegin(), said.rend(),
                                  [&](const Seen& seen) { return seen.place.step == step; });
  return found == said.rend() ? nullptr : &*found;
}

Finding first_in_steps(
    const Evidence& evidence,
    const std::function<Finding(const std::vector<TrainingOfRank>&, int step)>& what) {
  return first_in(trainings_in(evidence), [&](const auto& model) {
    const auto& ranks = model.second;
    return first_in(whole_steps(ranks), [&](int step) {
      Finding finding = what(ranks, step);
      return finding.empty()
                 ? finding
                 : std::move(finding).or_at(last_in_step(evidence, ranks[0].rank, step));
    });
  });
}

Finding first_training(const Evidence& evidence,
                       const std::function<Finding(const TrainingOfRank&,
                                                   const std::vector<TrainingOfRank>&)>& check) {
  return first_in(trainings_in(evidence), [&](const auto& model) {
    return first_in(model.second,
                    [&](const TrainingOfRank& training) { return check(training, model.second); });
  });
}

Finding first_on_ranks(const Evidence& evidence, const CheckOfStep& check) {
  return first_training(evidence, [&](const TrainingOfRank& training, const auto& ranks) {
    return first_in(training.steps, [&](const auto& numbered) -> Finding {
      const auto& [number, step] = numbered;
      Finding finding = check(training, step, ranks.size());
      return finding.empty()
                 ? finding
                 : in(training, number) + ": " +
                       std::move(finding).or_at(last_in_step(evidence, training.rank, number));
    });
  });
}

}  // namespace ddp::testing
