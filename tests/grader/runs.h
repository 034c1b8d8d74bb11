#pragma once

#include <deque>
#include <functional>
#include <string>

#include "grader/scenario.h"

// Runs of scenarios: each as usual and, where the stage takes futures, with callbacks that come late.

namespace ddp::testing {

struct Run {
  Evidence evidence;
  EdgeCases edge_cases;  // the scenario's, and those that its ranks told

  bool late_callbacks() const { return evidence.world.late_callbacks; }
  bool whole() const { return evidence.reports.ok(); }
};

/// All runs of a scenario, the usual one first. None if hung_before(). Made when they are asked for first.
const std::deque<Run>& runs_of(const Scenario& scenario);

/// The scenario because of which another one is not run; null if it is. A hang
/// in one scenario is expected in all that have its edge cases.
const Scenario* hung_before(const Scenario& scenario);

/// The test that fails if a run does not come to its end: the one about what was being done.
const std::string& payer_of(const Scenario& scenario, const Run& run);

/// Why a scenario did not come to its end; in full if no other test of this program's run says so.
std::string why_it_did_not_end(const Scenario& scenario);

}  // namespace ddp::testing
