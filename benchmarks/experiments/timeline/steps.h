#pragma once

#include <string>
#include <vector>

#include "experiments/timeline/settings.h"
#include "harness/result.h"
#include "models/profiles/profiled_model.h"

namespace ddp {

/// The steps of the variants that have code.
struct MeasuredSteps {
  std::vector<std::string> variants;
  at::Tensor seconds;  // [variants, steps], float64: of the slowest rank
};

/// Of each variant, the step of median length: [variants], int64.
at::Tensor median_steps(const MeasuredSteps& measured);

/// What --clock cluster trains: a transformer, as a profile.
ProfiledModel model_on_cluster(const TimelineSettings& settings);

/// Saves the result, and prints it as a table.
void save_steps(const TimelineSettings& settings, const Run& run, const MeasuredSteps& measured);

}  // namespace ddp
