#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "harness/benchmark.h"
#include "harness/interleaved.h"
#include "harness/trainer.h"
#include "harness/workload.h"

namespace ddp {

/// The times of one step's parts, in seconds.
using MeasureStep = std::function<std::vector<double>(Trainer&)>;

/// Measures the trainers interleaved (see measure_interleaved()), one step at a time, in
/// size.warmup + size.steps repetitions. Collective. Returns what `measure` returned after the
/// warm-up, each value the maximum over all ranks: [size.steps, trainers, parts], float64 on the
/// CPU. Rank 0 shows the progress on stderr, under `title`.
at::Tensor measure_steps(const std::string& title, const Size& size,
                         const DeviceContext& device_context, std::vector<Trainer>& trainers,
                         const MeasureStep& measure);

}  // namespace ddp
