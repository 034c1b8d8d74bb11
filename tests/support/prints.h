#pragma once

#include <string>

#include "ddp/ranks/fork_ranks.h"

// What a student's code prints in the ranks: to find out what is wrong, as everybody does.

namespace ddp::testing {

/// Below a failure: what the rank that `finding` names ("rank 1, step 0: ...") printed, or the first
/// that printed if that one did not. Empty if none did.
std::string printed_below(const std::string& finding, const RankReports& reports);

/// All that the ranks of a body printed goes to this program's output, of which VERBOSE=1 shows the
/// beginning and the end.
void pass_prints_on(const std::string& body, const RankReports& reports);

}  // namespace ddp::testing
