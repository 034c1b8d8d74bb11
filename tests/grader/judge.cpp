#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "ddp/backends/cuda.h"
#include "ddp/ranks/exceptions.h"
#include "grader/grading.h"
#include "grader/minimum_activity.h"
#include "grader/picture.h"
#include "grader/run_output.h"
#include "grader/runs.h"
#include "grader/scenario.h"
#include "grader/settings.h"

namespace ddp::testing {

EdgeCases edge_cases_of(const World& world) {
  EdgeCases edge_cases;
  if (world.ranks == 1) {
    edge_cases.insert(kOneRank);
  }
  if (world.ranks > 2) {
    edge_cases.insert(kManyRanks);
  }
  if (!world.subgroups.empty()) {
    edge_cases.insert(kGroups);
  }
  return edge_cases;
}

void tell_edge_case(Client& client, const std::string& edge_case) {
  client.fact(kToldEdgeCase + edge_case, 1);
}

EdgeCases told_edge_cases(const Evidence& evidence) {
  EdgeCases edge_cases;
  for (const SeenList& said : evidence.of) {
    for (const Seen& seen : said) {
      if (seen.kind == EventKind::kFact && seen.text.starts_with(kToldEdgeCase)) {
        edge_cases.insert(seen.text.substr(std::strlen(kToldEdgeCase)));
      }
    }
  }
  return edge_cases;
}

std::vector<Scenario> named(const std::vector<Scenario>& scenarios,
                            const std::vector<std::string>& names, const std::string& form) {
  std::vector<Scenario> chosen;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(scenarios, form + name, &Scenario::name);
    TORCH_CHECK(found != scenarios.end(), "there is no scenario \"", form, name, "\"");
    chosen.push_back(*found);
  }
  return chosen;
}

std::vector<Scenario> charged_to(const std::vector<Scenario>& scenarios, const std::string& test) {
  std::vector<Scenario> chosen;
  std::ranges::copy_if(scenarios, std::back_inserter(chosen),
                       [&](const Scenario& scenario) { return scenario.charged_to == test; });
  return chosen;
}

std::vector<Scenario> joined(const std::vector<std::vector<Scenario>>& lists) {
  std::vector<Scenario> all;
  for (const std::vector<Scenario>& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

Predicate all_of(std::vector<Predicate> predicates) {
  return [predicates = std::move(predicates)](const Evidence& evidence) {
    for (const Predicate& violation : predicates) {
      if (Finding finding = violation(evidence); !finding.empty()) {
        return finding;
      }
    }
    return Finding();
  };
}

namespace {

std::string in_scenario(const Scenario& scenario) {
  return "\"" + scenario.name + "\" (" + std::to_string(scenario.world.ranks) +
         (scenario.world.ranks == 1 ? " rank)" : " ranks)");
}

// What is wrong by a predicate. A scenario that did not come to its end may lack what it looks for.
Finding finding_of(const Predicate& violation, const Evidence& evidence) {
  try {
    return violation(evidence);
  } catch (const std::exception&) {
    if (evidence.reports.ok()) {
      throw;
    }
    return "";
  }
}

// What a stage has read may lie in a name that it has told.
std::string not_withheld(const std::string& text, const Evidence& evidence) {
  return text.empty() || !settings().withhold || tells_only_known_names(evidence)
             ? text
             : "the test's claim does not hold (what the ranks told is withheld)";
}

// Why nothing can be said of a scenario.
std::string why_not_judged(const Scenario& scenario, const std::deque<Run>& runs) {
  if (const Scenario* hung = hung_before(scenario); hung != nullptr && runs.empty()) {
    return in_scenario(*hung) + " hung, and no scenario like it was run; it " +
           why_it_did_not_end(*hung);
  }
  const bool whole = std::ranges::all_of(runs, &Run::whole);
  return whole ? "" : in_scenario(scenario) + " " + why_it_did_not_end(scenario);
}

// True if the code under test is a stub, which ends the test.
bool is_stub(const std::deque<Run>& runs) {
  if (runs.empty() || runs.front().whole()) {
    return false;
  }
  const RankReports& reports = runs.front().evidence.reports;
  const RankReport& culprit = reports.ranks[reports.culprit];
  if (culprit.not_implemented) {
    note_todo(culprit.reason);
  }
  return culprit.not_implemented;
}

std::string said_of(const Scenario& scenario, const Run& run, const std::string& finding) {
  if (!run.late_callbacks()) {
    return "in " + in_scenario(scenario) + ": " + finding;
  }
  return "in " + in_scenario(scenario) + ", late callbacks: " + finding +
         "\nIn this run a future's callbacks run late: after the thread that waits for its "
         "operation "
         "has gone on. A network may do that.";
}

std::string kind_of(const RankReport& culprit) {
  switch (culprit.outcome) {
    case RankOutcome::kTimedOut:
      return "waits forever";
    case RankOutcome::kThrew:
      return culprit.reason.find("disagree") == std::string::npos ? "exception"
                                                                  : "mismatch between ranks";
    default:
      return "died";
  }
}

// A finding, the run in which it is shown, and all that is said of it.
struct Shown {
  Finding finding;
  const Run* run = nullptr;
  std::string text = {};
};

// That a run did not come to its end, about what its culprit did last.
Shown ending_of(const Scenario& scenario, const Run& run) {
  const RankReports& reports = run.evidence.reports;
  const SeenList& said = run.evidence.of[reports.culprit];
  const std::string how = reports.describe();
  return {Finding(how).at(said.empty() ? nullptr : &said.back(),
                          kind_of(reports.ranks[reports.culprit])),
          &run, said_of(scenario, run, how)};
}

// What is wrong in a run; empty if nothing is. `charged`: that it did not come to its end, too.
Shown wrong_in(const Scenario& scenario, const Run& run, const Predicate& violation, bool charged) {
  Finding found = finding_of(violation, run.evidence);
  if (found.empty()) {
    return run.whole() || !charged ? Shown{std::move(found), &run} : ending_of(scenario, run);
  }
  found.text = not_withheld(found.text, run.evidence);
  std::string text =
      said_of(scenario, run, found.text) + printed_below(found.text, run.evidence.reports);
  return {std::move(found), &run, std::move(text)};
}

EdgeCases edge_cases_of(const Finding& finding, const Run& run) {
  EdgeCases edge_cases = finding.edge_cases;
  std::ranges::set_difference(run.edge_cases, finding.elsewhere,
                              std::inserter(edge_cases, edge_cases.end()));
  return edge_cases;
}

// The verdict on a claim in one scenario.
struct Verdict {
  const Scenario* scenario;
  Shown shown;             // what is wrong in the first run in which something is
  std::string unjudged;    // why nothing can be said
  EdgeCases edge_cases;    // until then
  std::string charged_to;  // for the finding, if others have one in this scenario, too

  const Finding& finding() const { return shown.finding; }
};

Verdict verdict_on(const Scenario& scenario, const std::deque<Run>& runs,
                   const Predicate& violation, const Predicate& unless) {
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  Shown in_usual_order;
  for (const Run& run : runs) {
    const std::string& payer = payer_of(scenario, run);
    Finding other = unless ? finding_of(unless, run.evidence) : Finding();
    if (!other.empty()) {
      return {&scenario, {}, other.text, edge_cases_of(other, run), payer};
    }
    Shown shown = wrong_in(scenario, run, violation, payer == test);
    if (!shown.finding.empty()) {
      const EdgeCases edge_cases = edge_cases_of(shown.finding, run);
      return {&scenario, std::move(shown), "", edge_cases, payer};
    }
    in_usual_order = in_usual_order.run == nullptr ? std::move(shown) : std::move(in_usual_order);
  }
  return {&scenario, std::move(in_usual_order), why_not_judged(scenario, runs),
          runs.empty() ? scenario.edge_cases : runs.back().edge_cases, scenario.charged_to};
}

// The same. Where a predicate throws, ranks have told what the tests would not: that is what is wrong.
Verdict verdict_or_error(const Scenario& scenario, const std::deque<Run>& runs,
                         const Predicate& violation, const Predicate& unless) {
  try {
    return verdict_on(scenario, runs, violation, unless);
  } catch (const std::exception& error) {
    const std::string what =
        "what the ranks told cannot be judged" + (settings().withhold ? "" : ": " + what_of(error));
    const Run& run = runs.front();
    return {&scenario,
            {what, &run, said_of(scenario, run, what)},
            "",
            run.edge_cases,
            scenario.charged_to};
  }
}

// The verdicts on a claim in all scenarios of a list.
struct Judgement {
  std::vector<Verdict> broken;   // with the fewest edge cases first
  int judged = 0;                // scenarios of which something can be said
  std::string unjudged;          // why the test cannot be judged, if nothing is broken
  std::optional<Verdict> timed;  // the first that keeps a claim on time
};

// The failures whose edge cases contain no other failure's.
std::vector<Verdict> simplest(const std::vector<Verdict>& broken) {
  std::vector<Verdict> kept;
  for (const Verdict& verdict : broken) {
    if (std::ranges::none_of(kept, [&](const Verdict& less) {
          return std::ranges::includes(verdict.edge_cases, less.edge_cases);
        })) {
      kept.push_back(verdict);
    }
  }
  return kept;
}

// What was thrown, and where; empty if a scenario came to its end.
std::string thrown(const Verdict& verdict) {
  const std::string& text = verdict.shown.text;
  const auto from = text.find(" threw an exception: ");
  return from == text.npos ? "" : text.substr(from, text.find("last seen", from) - from);
}

// "passes in 24 of 26 runs; also fails in "a" and 1 more"
std::string describe_others(const Judgement& found, const Verdict& shown) {
  std::string text = "passes in " +
                     std::to_string(found.judged - static_cast<int>(found.broken.size())) + " of " +
                     std::to_string(found.judged) + " runs";
  std::string next;
  std::size_t alike = 0;
  for (const Verdict& each : found.broken) {
    const bool other = each.scenario != shown.scenario;
    next = other && next.empty() ? "\"" + each.scenario->name + "\"" : next;
    alike += other && !thrown(shown).empty() && thrown(each) == thrown(shown) ? 1 : 0;
  }
  const std::size_t more = found.broken.size() - 1;
  if (more > 0) {
    text += "; also fails in " + next +
            (more == 1 ? "" : " and " + std::to_string(more - 1) + " more") +
            (alike == more ? ", by the same exception at the same line" : "");
  }
  const bool nearly_all = 10 * found.broken.size() > 9 * static_cast<std::size_t>(found.judged);
  for (const std::string& edge_case : nearly_all ? EdgeCases() : shown.edge_cases) {
    text += (edge_case == *shown.edge_cases.begin() ? "\nedge case: " : ", ") + edge_case;
  }
  return text;
}

nlohmann::json picture_of(const Verdict& verdict) {
  return picture_of(*verdict.scenario, *verdict.shown.run, verdict.finding(),
                    &runs_of(*verdict.scenario).front());
}

void settle(const Judgement& found) {
  if (!found.broken.empty() && !::testing::Test::HasFailure()) {
    note_picture(picture_of(found.broken.front()));
  } else if (found.broken.empty() && found.timed && !::testing::Test::HasFailure()) {
    note_picture(picture_of(*found.timed));
  }
  note_runs(found.judged - static_cast<int>(found.broken.size()), found.judged);
  for (const Verdict& verdict : found.broken) {
    note_broken({verdict.scenario->name, verdict.edge_cases, verdict.charged_to});
  }
  for (const Verdict& verdict : simplest(found.broken)) {
    ADD_FAILURE() << verdict.shown.text
                  << (settings().brief || found.judged == 1
                          ? ""
                          : "\n" + describe_others(found, verdict));
  }
  if (found.broken.empty() && !found.unjudged.empty()) {
    note_not_judged(found.unjudged);
  }
}

}  // namespace

void judge(const std::vector<Scenario>& scenarios, const Predicate& violation,
           const Predicate& unless) {
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  if (settings().device.is_cuda() && !why_no_gpu().empty()) {
    GTEST_SKIP() << why_no_gpu();
  }
  Judgement found;
  for (const Scenario& scenario : scenarios) {
    if (!settings().scenario.empty() && settings().scenario != scenario.name) {
      continue;
    }
    note_scenario(scenario);
    const std::deque<Run>& runs = runs_of(scenario);
    if (is_stub(runs)) {
      return;
    }
    Verdict verdict = verdict_or_error(scenario, runs, violation, unless);
    const bool needed = verdict.edge_cases.empty() &&
                        (&scenario == &scenarios.front() || scenario.charged_to == test);
    if (!verdict.unjudged.empty()) {
      note_excused(verdict.unjudged);
      found.unjudged = found.unjudged.empty() && needed ? verdict.unjudged : found.unjudged;
      continue;
    }
    found.judged += verdict.finding().holds_otherwise ? 2 : 1;
    const auto& times = verdict.finding().times;
    if (verdict.finding().empty() && times && times->expected_ns > 0 && scenario.world.ranks > 1 &&
        !found.timed) {
      found.timed = verdict;
    }
    if (!verdict.finding().empty()) {
      const auto size = [](const Verdict& each) { return each.edge_cases.size(); };
      const bool usual = verdict.edge_cases.empty();
      found.broken.insert(std::ranges::upper_bound(found.broken, size(verdict), {}, size),
                          std::move(verdict));
      if (settings().brief && usual) {
        break;
      }
    }
  }
  settle(found);
}

Predicate only_where(const Scenario& ordinary, const Predicate& first, const Predicate& violation) {
  return [=](const Evidence& evidence) {
    const bool right = std::ranges::all_of(
        runs_of(ordinary), [&](const Run& run) { return finding_of(first, run.evidence).empty(); });
    return right ? violation(evidence) : Finding();
  };
}

void judge_together(
    const std::vector<Scenario>& scenarios,
    const std::function<std::string(const std::vector<const Evidence*>&)>& violation) {
  if (settings().device.is_cuda() && !why_no_gpu().empty()) {
    GTEST_SKIP() << why_no_gpu();
  }
  std::vector<const Evidence*> all;
  for (const Scenario& scenario : scenarios) {
    note_scenario(scenario);
    const std::deque<Run>& runs = runs_of(scenario);
    if (is_stub(runs)) {
      return;
    }
    if (runs.empty()) {
      return note_not_judged(why_not_judged(scenario, runs));
    }
    if (!runs.front().whole()) {
      note_broken({scenario.name, {}, scenario.charged_to});
      const Shown ending = ending_of(scenario, runs.front());
      note_picture(picture_of(scenario, runs.front(), ending.finding));
      ADD_FAILURE() << ending.text;
      return;
    }
    all.push_back(&runs.front().evidence);
  }
  std::string finding = violation(all);
  for (const Evidence* evidence : all) {
    finding = not_withheld(finding, *evidence);
  }
  note_runs(finding.empty() ? 1 : 0, 1);
  if (!finding.empty()) {
    note_broken({scenarios.front().name, {}, scenarios.front().charged_to});
    note_picture(picture_of(scenarios.front(), runs_of(scenarios.front()).front(), finding));
    ADD_FAILURE() << "in " << in_scenario(scenarios.front()) << " and those like it: " << finding
                  << printed_below(finding, all.front()->reports);
  }
}

}  // namespace ddp::testing
