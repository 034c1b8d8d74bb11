#include "grader/questions.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "grader/settings.h"
#include "grader/training_claims.h"

namespace ddp::testing {

namespace {

constexpr std::size_t kOfAKind = 3;  // in a scenario
constexpr std::size_t kLines = 60;

struct Declared {
  std::vector<std::string> scenarios;
  Questions::Ask ask;
};

std::vector<Declared>& declared_questions() {
  static std::vector<Declared> all;
  return all;
}

nlohmann::json& kept_questions() {
  static nlohmann::json all = nlohmann::json::array();
  return all;
}

std::string line_of(const Evidence& evidence, const Seen& seen, int rank) {
  const auto launch = [&] { return describe_operation(evidence.launch_of(rank, seen.operation)); };
  switch (seen.kind) {
    case EventKind::kReady:
      return "the gradient of layer " + std::to_string(seen.index) + " is ready" +
             (seen.place.no_sync ? " (inside NoSync)" : "");
    case EventKind::kLaunch:
      return "launched: " + describe_operation(seen);
    case EventKind::kWait:
      return "waits for " + launch();
    case EventKind::kPhase:
      return seen.place.phase == Phase::kForward    ? "forward begins"
             : seen.place.phase == Phase::kBackward ? "backward begins"
             : seen.place.phase == Phase::kFinish   ? "finish() begins"
                                                    : "";
    default:
      return "";
  }
}

// Nothing where the evidence is not as expected: a question costs no points.
std::vector<Question> asked_by(const Declared& declared, const Evidence& evidence) {
  try {
    return declared.ask(evidence);
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

Questions::Questions(std::vector<std::string> scenarios, Ask ask) {
  declared_questions().push_back({std::move(scenarios), std::move(ask)});
}

void ask_about(const Evidence& evidence, const std::string& scenario) {
  if (!evidence.reports.ok()) {
    return;
  }
  std::mt19937_64 draw(settings().seed);
  for (const Declared& declared : declared_questions()) {
    if (std::ranges::find(declared.scenarios, scenario) == declared.scenarios.end()) {
      continue;
    }
    std::vector<Question> asked = asked_by(declared, evidence);
    std::ranges::shuffle(asked, draw);
    std::map<std::string, std::size_t> of_kind;
    for (const Question& each : asked) {
      if (of_kind[each.about]++ < kOfAKind) {
        kept_questions().push_back({{"about", each.about},
                                    {"scenario", scenario},
                                    {"asked", each.asked},
                                    {"answer", each.answer},
                                    {"evidence", each.evidence}});
      }
    }
  }
}

const nlohmann::json& questions() { return kept_questions(); }

Questions::Ask of_each_step(
    const std::function<std::vector<Question>(const Evidence&, const TrainingOfRank&, int)>& ask) {
  return [ask](const Evidence& evidence) {
    std::vector<Question> all;
    if (!gradients_are_means(evidence).empty()) {
      return all;  // answers say what right code does
    }
    for (const auto& [model, ranks] : trainings_in(evidence)) {
      for (const TrainingOfRank& training : ranks) {
        for (const auto& [number, step] : training.steps) {
          if (step.ended) {
            const std::vector<Question> found = ask(evidence, training, number);
            all.insert(all.end(), found.begin(), found.end());
          }
        }
      }
    }
    return all;
  };
}

std::vector<std::string> course_of(const Evidence& evidence, const TrainingOfRank& training,
                                   int step) {
  std::vector<std::string> lines;
  for (const Seen& seen : evidence.of[training.rank]) {
    const std::string line =
        seen.place.step == step ? line_of(evidence, seen, training.rank) : std::string();
    if (!line.empty() && lines.size() < kLines) {
      lines.push_back(line);
    }
  }
  return lines;
}

std::string on_rank_in_step(const TrainingOfRank& training, int step) {
  return "On rank " + std::to_string(training.rank) + ", in step " + std::to_string(step) + ", ";
}

std::int64_t carried_layer(const TrainingOfRank& training, const Seen& launch) {
  std::int64_t found = -1;
  for (const auto& [layer, parameter] : training.parameter) {
    if (parameter.numel() == launch.elements) {
      if (found >= 0) {
        return -1;
      }
      found = layer;
    }
  }
  return found;
}

}  // namespace ddp::testing
