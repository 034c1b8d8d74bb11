#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "ddp/backends/cuda.h"
#include "support/body.h"
#include "support/grading.h"
#include "support/prints.h"
#include "support/runs.h"
#include "support/settings.h"

namespace ddp::testing {

namespace {

std::string in_body(const Body& body) {
  return "\"" + body.name + "\" (" + std::to_string(body.world.ranks) +
         (body.world.ranks == 1 ? " rank)" : " ranks)");
}

// What is wrong by a predicate. A body that did not come to its end may lack what it looks for.
std::string finding_of(const Predicate& holds, const Evidence& evidence) {
  try {
    return holds(evidence);
  } catch (const std::exception&) {
    if (evidence.reports.ok()) {
      throw;
    }
    return "";
  }
}

// Why nothing can be said of a body.
std::string why_not_judged(const Body& body, const std::deque<Run>& runs) {
  if (runs.empty()) {
    return "\"" + hung_body() + "\" hung, and no other body was run; it " +
           why_it_did_not_end(hung_body());
  }
  const bool whole = std::ranges::all_of(runs, &Run::whole);
  return whole ? "" : in_body(body) + " " + why_it_did_not_end(body.name);
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

// What is wrong in the first run of a body in which something is; empty if nothing is. `charged`: a run
// that did not come to its end is wrong, too.
std::string wrong_in(const Body& body, const Run& run, const Predicate& holds, bool charged) {
  if (std::string finding = finding_of(holds, run.evidence); !finding.empty()) {
    const auto is_wrong = [&](const Evidence& evidence) {
      return !finding_of(holds, evidence).empty();
    };
    const bool usual = run.schedule.usual() || settings().schedule || !run.whole();
    const Run& shown = usual ? run : shortest(body, run, is_wrong);
    finding = finding_of(holds, shown.evidence);
    return "in " + in_body(body) + with_schedule(shown) + ": " + finding + describe_order(shown) +
           printed_below(finding, shown.evidence.reports);
  }
  return run.whole() || !charged ? ""
                                 : "in " + in_body(body) + with_schedule(run) + ": " +
                                       run.evidence.reports.describe() + describe_order(run);
}

// What a claim is worth in a body.
struct Verdict {
  std::string finding;
  std::string unjudged;  // why nothing can be said
};

Verdict verdict_on(const Body& body, const std::deque<Run>& runs, const Predicate& holds,
                   const Predicate& unless, bool charged) {
  for (const Run& run : runs) {
    if (std::string other = unless ? finding_of(unless, run.evidence) : ""; !other.empty()) {
      return {"", other};
    }
    if (std::string finding = wrong_in(body, run, holds, charged); !finding.empty()) {
      return {finding, ""};
    }
  }
  return {"", why_not_judged(body, runs)};
}

}  // namespace

void judge(const std::vector<Body>& bodies, const Predicate& holds, const Predicate& unless) {
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  if (settings().device.is_cuda() && !why_no_gpu().empty()) {
    GTEST_SKIP() << why_no_gpu();
  }
  std::vector<std::string> broken;  // names of bodies
  std::string unjudged;             // why the first body, or one that is this test's, says nothing
  for (const Body& body : bodies) {
    note_body(body.name);
    const std::deque<Run>& runs = runs_of(body);
    if (is_stub(runs)) {
      return;
    }
    const bool charged = body.charged_to == test;
    const Verdict verdict = verdict_on(body, runs, holds, unless, charged);
    if (!verdict.unjudged.empty() && unjudged.empty() && (&body == &bodies.front() || charged)) {
      unjudged = verdict.unjudged;
    }
    if (!verdict.finding.empty()) {
      if (broken.empty()) {
        ADD_FAILURE() << verdict.finding;
      }
      if (settings().brief) {
        return;
      }
      broken.push_back("\"" + body.name + "\"");
    }
  }
  if (broken.size() > 1) {
    ADD_FAILURE() << "the same claim is broken in " << broken[1]
                  << (broken.size() == 2 ? ""
                                         : " and " + std::to_string(broken.size() - 2) + " more");
  } else if (!unjudged.empty()) {
    note_not_judged(unjudged);
  }
}

void judge_together(const std::vector<Body>& bodies,
                    const std::function<std::string(const std::vector<const Evidence*>&)>& holds) {
  if (settings().device.is_cuda() && !why_no_gpu().empty()) {
    GTEST_SKIP() << why_no_gpu();
  }
  std::vector<const Evidence*> all;
  for (const Body& body : bodies) {
    note_body(body.name);
    const std::deque<Run>& runs = runs_of(body);
    if (is_stub(runs)) {
      return;
    }
    if (runs.empty()) {
      return note_not_judged(why_not_judged(body, runs));
    }
    if (!runs.front().whole()) {
      ADD_FAILURE() << "in " << in_body(body) << ": " << runs.front().evidence.reports.describe();
      return;
    }
    all.push_back(&runs.front().evidence);
  }
  if (const std::string finding = holds(all); !finding.empty()) {
    ADD_FAILURE() << "in " << in_body(bodies.front()) << " and those like it: " << finding
                  << printed_below(finding, all.front()->reports);
  }
}

std::vector<Body> named(const std::vector<Body>& bodies, const std::vector<std::string>& names) {
  std::vector<Body> chosen;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(bodies, name, &Body::name);
    TORCH_CHECK(found != bodies.end(), "there is no body \"", name, "\"");
    chosen.push_back(*found);
  }
  return chosen;
}

std::vector<Body> joined(const std::vector<std::vector<Body>>& lists) {
  std::vector<Body> all;
  for (const std::vector<Body>& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

Predicate all_of(std::vector<Predicate> predicates) {
  return [predicates = std::move(predicates)](const Evidence& evidence) {
    for (const Predicate& holds : predicates) {
      if (std::string finding = holds(evidence); !finding.empty()) {
        return finding;
      }
    }
    return std::string();
  };
}

}  // namespace ddp::testing
