#pragma once

#include "experiments/bucketed_ddp/ways.h"

namespace ddp {

/// bucketed_ddp at its published scale, in virtual time: the same series, of one value each, of one
/// rank, since all do the same. Throws c10::ValueError for flags and calibrations that do not fit,
/// c10::NotImplementedError if no stage is finished.
Result train_at_published_scale(const TrainingSettings& settings);

}  // namespace ddp
