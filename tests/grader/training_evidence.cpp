#include "grader/training_evidence.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>

namespace ddp::testing {

namespace {

void add_fact(const Seen& fact, TrainingOfRank& training, TrainingStep& step) {
  const std::string_view text = fact.text;
  if (text == "group") {
    training.group = static_cast<int>(fact.number);
  } else if (text == "listed") {
    training.listed.push_back(fact.number);
  } else if (text == "trainable" && fact.number != 0) {
    training.trainable.insert(fact.index);
  } else if (text == "gradients are none") {
    step.ready.clear();
  } else if (text == "backward goes on") {
    step.goes_on = &fact;
  } else if (text == kStridedGradient) {
    step.strided[fact.index] = fact.number;
  } else if (text.starts_with(kStrided)) {
    training.strided.insert(fact.text.substr(std::strlen(kStrided)) + " " +
                            std::to_string(fact.index));
  }
}

void add_value(const Seen& seen, TrainingOfRank& training, TrainingStep& step) {
  static const std::map<std::string_view, Tensors TrainingOfRank::*> of_rank = {
      {"start", &TrainingOfRank::start},
      {"parameter", &TrainingOfRank::parameter},
      {"initial buffer", &TrainingOfRank::initial_buffer},
      {"buffer", &TrainingOfRank::buffer}};
  static const std::map<std::string_view, Tensors TrainingStep::*> of_step = {
      {"local", &TrainingStep::local},
      {"gradient", &TrainingStep::gradient},
      {"updated", &TrainingStep::updated},
      {"alone", &TrainingStep::alone}};
  if (seen.index < 0) {
    training.others[seen.text] = seen.value;
  } else if (const auto state = of_rank.find(seen.text); state != of_rank.end()) {
    (training.*state->second)[seen.index] = seen.value;
  } else if (const auto found = of_step.find(seen.text); found != of_step.end()) {
    (step.*found->second)[seen.index] = seen.value;
    if (seen.text == "gradient") {
      step.ended = true;
      step.handed_in = &seen;
    }
  }
}

TrainingsByModel sort(const Evidence& evidence) {
  return parts_of<TrainingOfRank>(evidence, [](const Seen& seen) { return seen.place.model; });
}

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

// The gradients that backward computed outside NoSync, in order.
std::vector<const Seen*> ready_outside(const TrainingStep& step) {
  std::vector<const Seen*> ready;
  std::ranges::copy_if(step.ready, std::back_inserter(ready),
                       [](const Seen* seen) { return !seen->place.no_sync; });
  return ready;
}

// The place in `ready` of the last of these layers' gradients; nothing if one never came.
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

}  // namespace

void TrainingOfRank::add(const Seen& seen) {
  TrainingStep before;  // the first step
  TrainingStep& step = seen.place.step < 0 ? before : steps[seen.place.step];
  if (seen.kind == EventKind::kFact) {
    add_fact(seen, *this, step);
  } else if (seen.kind == EventKind::kValue) {
    add_value(seen, *this, step);
  } else if (seen.kind == EventKind::kLaunch) {
    (seen.place.phase == Phase::kConstruction ? construction : step.launches).push_back(&seen);
  } else if (seen.kind == EventKind::kReady) {
    step.ready.push_back(&seen);
  }
}

const TrainingsByModel& trainings_in(const Evidence& evidence) {
  return sorted_once(evidence, sort);
}

std::string where(const Seen& seen, int rank) {
  std::string text = "rank " + std::to_string(rank);
  if (seen.place.step >= 0) {
    text += ", step " + std::to_string(seen.place.step);
  }
  return text;
}

std::string list_of(const std::vector<const Seen*>& launches,
                    const std::function<std::string(const Seen&)>& end) {
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

std::string on(const TrainingOfRank& training) { return "rank " + std::to_string(training.rank); }

std::string in(const TrainingOfRank& training, int step) {
  return on(training) + ", step " + std::to_string(step);
}

std::vector<Turn> turns_of(const TrainingStep& step,
                           const std::vector<std::vector<std::int64_t>>& layers_of_buckets) {
  const std::vector<const Seen*> ready = ready_outside(step);
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
      turn.next = due + 1 < ready.size() ? ready[due + 1] : step.goes_on;
    }
  }
  return turns;
}

std::string late_for(const Turn& turn, const Seen& launch) {
  if (turn.due == nullptr) {
    return "";
  }
  if (launch.place.phase == Phase::kFinish) {
    return "backward had ended";
  }
  if (turn.next == nullptr || launch.order < turn.next->order) {
    return "";
  }
  return turn.next->kind == EventKind::kReady ? "that of " + layer(turn.next->index) + " was ready"
                                              : "backward had gone on";
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
  for (const auto& [model, ranks] : trainings_in(evidence)) {
    for (const int step : whole_steps(ranks)) {
      if (Finding finding = what(ranks, step); !finding.empty()) {
        return std::move(finding).or_at(last_in_step(evidence, ranks[0].rank, step));
      }
    }
  }
  return "";
}

Finding first_on_ranks(const Evidence& evidence, const CheckOfStep& check) {
  for (const auto& [model, ranks] : trainings_in(evidence)) {
    for (const TrainingOfRank& training : ranks) {
      for (const auto& [number, step] : training.steps) {
        if (Finding finding = check(training, step, ranks.size()); !finding.empty()) {
          return in(training, number) + ": " +
                 std::move(finding).or_at(last_in_step(evidence, training.rank, number));
        }
      }
    }
  }
  return "";
}

Finding first_event(const Evidence& evidence, EventKind kind,
                    const std::function<Finding(const Seen&, int rank)>& describe) {
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind == kind) {
        if (Finding finding = describe(seen, static_cast<int>(rank)); !finding.empty()) {
          return std::move(finding).or_at(&seen);
        }
      }
    }
  }
  return "";
}

}  // namespace ddp::testing
