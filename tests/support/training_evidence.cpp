#include "support/training_evidence.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

namespace ddp::testing {

namespace {

void sort_value(const Seen& seen, TrainingOfRank& training, TrainingStep& step) {
  const std::map<std::string_view, Tensors*> places = {{"start", &training.start},
                                                       {"parameter", &training.parameter},
                                                       {"initial buffer", &training.initial_buffer},
                                                       {"buffer", &training.buffer},
                                                       {"local", &step.local},
                                                       {"gradient", &step.gradient},
                                                       {"updated", &step.updated},
                                                       {"alone", &step.alone}};
  if (const auto place = places.find(seen.text); place != places.end()) {
    (*place->second)[seen.index] = seen.value;
    step.ended = step.ended || place->second == &step.gradient;
  }
}

TrainingsByModel sort(const Evidence& evidence) {
  std::map<int, std::map<int, TrainingOfRank>> sorted;  // by model, then rank
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    for (const Seen& seen : evidence.of[rank]) {
      TrainingOfRank& training = sorted[seen.place.model][static_cast<int>(rank)];
      training.rank = static_cast<int>(rank);
      if (seen.kind == EventKind::kFact && seen.text == "group") {
        training.group = static_cast<int>(seen.number);
      }
      if (seen.kind == EventKind::kFact && seen.text == "listed") {
        training.listed.push_back(seen.number);
      }
      if (seen.kind == EventKind::kValue && seen.index < 0) {
        training.others[seen.text] = seen.value;
      }
      if (seen.kind == EventKind::kFact && seen.text == "trainable" && seen.number != 0) {
        training.trainable.insert(seen.index);
      }
      if (seen.kind == EventKind::kFact && seen.text.starts_with(kStrided)) {
        training.strided.insert(seen.text.substr(std::strlen(kStrided)) + " " +
                                std::to_string(seen.index));
      }
      const bool construction = seen.place.phase == Phase::kConstruction;
      if (seen.kind == EventKind::kLaunch && construction) {
        training.construction.push_back(&seen);
      } else if (seen.place.step < 0) {
        TrainingStep before;
        sort_value(seen, training, before);
      } else {
        TrainingStep& step = training.steps[seen.place.step];
        if (seen.kind == EventKind::kFact && seen.text == "gradients are none") {
          step.ready.clear();
        } else if (seen.kind == EventKind::kFact && seen.text == kStridedGradient) {
          step.strided[seen.index] = seen.number;
        } else if (seen.kind == EventKind::kFact && seen.text == "backward goes on") {
          step.goes_on = &seen;
        } else if (seen.kind == EventKind::kLaunch) {
          step.launches.push_back(&seen);
        } else if (seen.kind == EventKind::kReady) {
          step.ready.push_back(&seen);
        } else if (seen.kind == EventKind::kValue) {
          sort_value(seen, training, step);
        }
      }
    }
  }
  TrainingsByModel trainings;
  for (auto& [model, by_rank] : sorted) {
    for (const int rank : members_of(evidence.world, by_rank.begin()->second.group)) {
      if (const auto found = by_rank.find(rank);
          found != by_rank.end() && !found->second.start.empty()) {
        trainings[model].push_back(std::move(found->second));
      }
    }
  }
  return trainings;
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

}  // namespace

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
