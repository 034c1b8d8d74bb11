#include "grader/minimum_activity.h"

#include <algorithm>
#include <fstream>
#include <map>
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
  static std::map<std::string, nlohmann::json> by_file{{"", nlohmann::json::object()}};
  const std::string& file = settings().minimum_activity;
  if (!by_file.contains(file)) {
    by_file[file] = nlohmann::json::parse(std::ifstream(file));
  }
  return by_file[file];
}

// Which gradients a step has may be drawn, so that half of them are enough.
constexpr const char* kGradients = "gradients";

using Activity = std::map<std::string, std::int64_t>;

// What it counts as; empty for what does not count. Of several values of one name the first: how many
// there are may be the stage's choice, as buckets are.
std::string activity_of(const Seen& seen) {
  switch (seen.kind) {
    case EventKind::kPhase:
      return "phase " + std::to_string(static_cast<int>(seen.place.phase));
    case EventKind::kReady:
      return kGradients;
    case EventKind::kThrew:
      return "exception: " + seen.text;
    case EventKind::kValue:
      return seen.index <= 0 ? "value: " + seen.text : "";
    default:
      return "";
  }
}

Activity activity_in(const SeenList& said) {
  Activity activity;
  for (const Seen& seen : said) {
    if (const std::string name = activity_of(seen); !name.empty()) {
      ++activity[name];
    }
  }
  return activity;
}

Activity due_activity(const std::string& scenario, int rank, const World& world) {
  const auto known = known_activity().find(scenario);
  // Where communication fails, a scenario ends early, and not all solutions at the same place.
  return known == known_activity().end() || world.failure ? Activity()
                                                          : known->at(rank).get<Activity>();
}

std::string what_is_missing(const Activity& due, const Activity& done) {
  for (const auto& [name, count] : due) {
    const auto found = done.find(name);
    const std::int64_t least = name == kGradients ? (count + 1) / 2 : count;
    if (const std::int64_t came = found == done.end() ? 0 : found->second; came < least) {
      return "without doing what it had to do: of \"" + name + "\" " + std::to_string(least) +
             " were due, and there were " + std::to_string(came);
    }
  }
  return done.empty() ? "without doing anything" : "";
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
    const Activity done = activity_in(evidence.of[rank]);
    std::string missing = what_is_missing(due_activity(scenario, rank, evidence.world), done);
    counts.push_back(done);
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
