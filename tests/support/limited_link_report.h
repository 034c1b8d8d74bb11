#pragma once

#include <functional>

#include "support/ranks.h"

namespace ddp::testing {

/// Runs `report` in two ranks in real time, over a link as slow as `network` says: a report, worth
/// no points. Skips the test on a GPU.
void run_on_limited_link(const NetworkModel& network, const std::function<void(Rank&)>& report);

}  // namespace ddp::testing
