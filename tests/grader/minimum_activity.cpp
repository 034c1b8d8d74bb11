#include "grader/minimum_activity.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "grader/scenario.h"
#include "grader/settings.h"

namespace ddp::testing {

namespace {

// By scenario, of each rank.
nlohmann::json& seen_activity() {
  static nlohmann::json activity = nlohmann::json::object();
  return activity;
}

const nlohmann::json& known_activity() {
  static const nlohmann::json known =
      settings().minimum_activity.empty()
          ? nlohmann::json::object()
          : nlohmann::json::parse(std::ifstream(settings().minimum_activity));
  return known;
}

// Of several values of one name the first: how many there are may be the stage's choice, as buckets are.
bool is_activity(const Seen& seen) {
  return seen.kind == EventKind::kPhase || seen.kind == EventKind::kThrew ||
         (seen.kind == EventKind::kValue && seen.index <= 0);
}

std::int64_t due_activity(const std::string& scenario, int rank, const World& world) {
  const auto known = known_activity().find(scenario);
  // Where communication fails, a scenario ends early, and not all solutions at the same place.
  return known == known_activity().end() || world.failure ? 1 : known->at(rank).get<std::int64_t>();
}

std::string what_is_missing(std::int64_t due, std::int64_t activity) {
  return activity >= due ? ""
                         : "without doing what it had to do: of " + std::to_string(due) +
                               " steps, values and calls that it should have told of, there were " +
                               std::to_string(activity);
}

}  // namespace

// An edge case makes a failure cheaper, and a stage's code could tell one itself.
void keep_known_edge_cases(Evidence& evidence, const std::string& scenario) {
  const auto known = known_activity().find(scenario);
  for (SeenList& said : evidence.of) {
    for (Seen& seen : said) {
      const bool tells = seen.kind == EventKind::kFact && seen.text.starts_with(kToldEdgeCase);
      if (tells && known != known_activity().end() &&
          std::ranges::find(*known, nlohmann::json(seen.text)) == known->end()) {
        seen.text.clear();
      }
    }
  }
}

void require_activity(Evidence& evidence, const std::string& scenario) {
  RankReports& reports = evidence.reports;
  const bool whole = reports.ok();
  auto counts = nlohmann::json::array();
  for (int rank = 0; rank < evidence.world.ranks; ++rank) {
    counts.push_back(std::ranges::count_if(evidence.of[rank], is_activity));
    std::string missing =
        what_is_missing(due_activity(scenario, rank, evidence.world), counts.back());
    missing = missing.empty() ? evidence.doubts[rank] : missing;
    if (whole && !missing.empty()) {
      reports.ranks[rank].reason = std::move(missing);
      reports.culprit = reports.ok() ? rank : reports.culprit;
    }
  }
  for (const std::string& edge_case : told_edge_cases(evidence)) {
    counts.push_back(kToldEdgeCase + edge_case);
  }
  if (reports.ok()) {
    seen_activity()[scenario] = std::move(counts);
  }
}

const nlohmann::json& minimum_activity() { return seen_activity(); }

}  // namespace ddp::testing
