#pragma once

#include "support/ranks.h"

namespace ddp::testing {

/// The rank's group once more, with messages that travel in private memory, which no MemoryMeter
/// counts: nothing below keeps the caller's tensors longer than their message takes. What is
/// counted then is the caller's own alone. Only for messages; collectives go through as they are.
ProcessGroupPtr make_uncounted_group(Rank& rank);

}  // namespace ddp::testing
