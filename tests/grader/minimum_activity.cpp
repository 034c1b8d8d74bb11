#include "grader/minimum_activity.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>

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
constexpr const char* kException = "exception: ";
constexpr const char* kPhase = "phase ";
constexpr const char* kFact = "fact in phase ";

using Activity = std::map<std::string, std::int64_t>;

std::string fact_in(Phase phase, const std::string& name) {
  return kFact + std::to_string(static_cast<int>(phase)) + ": " + name;
}

// What it counts as; empty for what does not count.
std::string activity_of(const Seen& seen) {
  switch (seen.kind) {
    case EventKind::kPhase:
      return kPhase + std::to_string(static_cast<int>(seen.place.phase));
    case EventKind::kReady:
      return kGradients;
    case EventKind::kThrew:
      return kException + seen.text;
    case EventKind::kValue:
      return "value: " + seen.text;
    case EventKind::kFact:
      return fact_in(seen.place.phase, seen.text);
    default:
      return "";
  }
}

// Of several values of one name the first counts: how many there are may be the stage's choice, as buckets
// are.
Activity activity_in(const SeenList& said) {
  Activity activity;
  for (const Seen& seen : said) {
    const bool counts = seen.kind != EventKind::kValue || seen.index <= 0;
    if (const std::string name = activity_of(seen); counts && !name.empty()) {
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
    if (name.starts_with(kFact)) {
      continue;  // some depend on what the stage does
    }
    const auto found = done.find(name);
    const std::int64_t least = name == kGradients ? (count + 1) / 2 : count;
    if (const std::int64_t came = found == done.end() ? 0 : found->second; came < least) {
      return "without doing what it had to do: of \"" + name + "\" " + std::to_string(least) +
             " were due, and there were " + std::to_string(came);
    }
  }
  return done.empty() ? "without doing anything" : "";
}

// All that solutions have told of, in any scenario.
const std::set<std::string>& known_names() {
  static std::map<std::string, std::set<std::string>> by_file;
  const auto [found, is_new] = by_file.try_emplace(settings().minimum_activity);
  if (is_new) {
    for (const auto& said : known_activity()) {
      for (const auto& of_rank : said) {
        for (const auto& [name, count] : of_rank.items()) {
          found->second.insert(name);
        }
      }
    }
  }
  return found->second;
}

// Whether the tests tell it, and only while no code of the stage's runs.
bool is_told_between_calls(const std::string& fact) {
  const auto is_told_in = [&](int phase) {
    return known_names().contains(fact_in(static_cast<Phase>(phase), fact));
  };
  const auto calls =
      std::views::iota(static_cast<int>(Phase::kSetup) + 1, static_cast<int>(Phase::kCanary));
  return is_told_in(static_cast<int>(Phase::kSetup)) && std::ranges::none_of(calls, is_told_in);
}

// What the tests cannot have told: a place more often than a solution's run goes there, or a fact while
// code of the stage's runs. Where a call must throw, one that does not goes on to other places.
std::string what_is_not_the_tests(const Activity& due, const Activity& done, const SeenList& said) {
  const auto throws = due.lower_bound(kException);
  const bool goes_on = throws != due.end() && throws->first.starts_with(kException);
  for (const auto& [name, count] : done) {
    const auto found = due.find(name);
    if (name.starts_with(kPhase) && !due.empty() && !goes_on &&
        count > (found == due.end() ? 0 : found->second)) {
      return "but went to \"" + name + "\" more often than the tests do";
    }
  }
  const auto own = std::ranges::find_if(said, [](const Seen& seen) {
    return seen.kind == EventKind::kFact && seen.place.phase != Phase::kSetup &&
           is_told_between_calls(seen.text);
  });
  return own == said.end() ? "" : "but told what only the tests tell, while its own code ran";
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
    const Activity due = due_activity(scenario, rank, evidence.world);
    counts.push_back(done);
    std::string missing = what_is_missing(due, done);
    missing = missing.empty() ? what_is_not_the_tests(due, done, evidence.of[rank]) : missing;
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

bool tells_only_known_names(const Evidence& evidence) {
  return std::ranges::all_of(evidence.of, [](const SeenList& said) {
    return std::ranges::all_of(said, [](const Seen& seen) {
      const std::string name = activity_of(seen);
      return seen.text.empty() || name.empty() || known_names().contains(name);
    });
  });
}

const nlohmann::json& minimum_activity() { return seen_activity(); }

}  // namespace ddp::testing
