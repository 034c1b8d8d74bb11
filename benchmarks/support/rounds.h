#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "ddp/benchmark.h"
#include "support/trainer.h"
#include "support/turns.h"
#include "support/workload.h"

namespace ddp {

/// The times of one step's parts, in seconds.
using MeasureStep = std::function<std::vector<double>(Trainer&)>;

/// Lets the trainers take turns (see take_turns()), step by step, for size.warmup + size.steps
/// rounds. Collective. Returns what `measure` returned after the warm-up, each value the largest of
/// all ranks: [size.steps, trainers, parts], float64 on the CPU. On rank 0 it shows its progress on
/// stderr, under `title`.
at::Tensor measure_rounds(const std::string& title, const Size& size, const Workplace& workplace,
                          std::vector<Trainer>& trainers, const MeasureStep& measure);

}  // namespace ddp
