#pragma once

#include "experiments/ddp_suite/settings.h"
#include "harness/result.h"

namespace ddp {

/// ddp_suite at its published scale, in virtual time: the same series, of one value each, since all
/// ranks and iterations take the same time. Throws c10::ValueError for flags and calibrations that do
/// not fit, c10::NotImplementedError if stage 03 is not written.
Result run_suite_at_published_scale(const SuiteSettings& settings);

}  // namespace ddp
