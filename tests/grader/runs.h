#pragma once

#include <deque>
#include <functional>
#include <string>

#include "grader/scenario.h"

// Runs of scenarios: each in the usual order of events, and where a network allows more, in others.

namespace ddp::testing {

struct Run {
  Schedule schedule;
  Evidence evidence;
  EdgeCases edge_cases;  // the scenario's, and those that its ranks told

  bool whole() const { return evidence.reports.ok(); }
};

/// All runs of a scenario, in the usual order first; with SCHEDULE= that one alone. None if hung_before().
/// Made when they are asked for first.
const std::deque<Run>& runs_of(const Scenario& scenario);

/// The scenario because of which another one is not run; null if it is. A hang
/// in one scenario is expected in all that have its edge cases.
const Scenario* hung_before(const Scenario& scenario);

/// The test that fails if a run does not come to its end: the one about what was being done.
const std::string& payer_of(const Scenario& scenario, const Run& run);

/// Why a scenario did not come to its end; in full if no other test of this program's run says so.
std::string why_it_did_not_end(const Scenario& scenario);

/// A run of which `is_wrong` is true, with as few operations in another order as can be found from
/// `run` on.
const Run& shortest(const Scenario& scenario, const Run& run,
                    const std::function<bool(const Evidence&)>& is_wrong);

/// " with SCHEDULE=10000400005", and below a finding what that changes; empty in the usual order.
std::string with_schedule(const Run& run);
std::string describe_order(const Run& run);

}  // namespace ddp::testing
