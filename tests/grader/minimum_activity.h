#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ddp/referee/evidence.h"

// A rank that says that it has finished has shown little: a stage's code may have said so. What shows
// that a scenario ran is what it did, and mistakes that are made on purpose and must be found: see
// World::touch_on_purpose.

namespace ddp::testing {

/// In the parent: edge cases that a rank has told, and those of a solution have not, are told no more.
void keep_known_edge_cases(Evidence& evidence, const std::string& scenario);

/// If all ranks seem to have finished, and one of them did less than its scenario is known to do
/// (settings().minimum_activity), or told what only the tests tell, or the referee doubts what it said,
/// that rank has failed: see evidence.reports.
void require_activity(Evidence& evidence, const std::string& scenario);

/// Whether all names in it are those of what a solution tells, in any scenario: a stage may have put into
/// others what it has read.
bool tells_only_known_names(const Evidence& evidence);

/// By finished scenario, of each rank: the phases, values, exceptions and facts that it has told of, and
/// how often, as JSON: {"three layers, three steps": [{"phase 2": 3, "value: gradient": 3}]}. No correct
/// solution changes it, but for facts. Edge cases that ranks have told follow.
const nlohmann::json& minimum_activity();

}  // namespace ddp::testing
