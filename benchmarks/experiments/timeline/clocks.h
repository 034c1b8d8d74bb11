#pragma once

#include "experiments/timeline/settings.h"

namespace ddp {

/// Each measures and draws all steps, saves them (steps.h), and returns the program's exit code.
int run_by_virtual_clock(const TimelineSettings& settings);
int run_by_real_clock(const TimelineSettings& settings);
int run_by_cluster_clock(const TimelineSettings& settings);

}  // namespace ddp
