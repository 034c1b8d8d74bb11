#pragma once

#include "support/ranks.h"

namespace ddp::testing {

/// The rank's group again, but with messages in private memory that no MemoryMeter counts: below
/// this group nothing keeps the caller's tensors longer than their messages take, so that only the
/// caller's own memory is counted. Affects messages only; collectives pass through unchanged.
ProcessGroupPtr make_uncounted_group(Rank& rank);

}  // namespace ddp::testing
