#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/progress.h"

namespace ddp {

/// How often each variant is measured. Negative: the preset's.
struct Repetitions {
  int measured = -1;
  int warmup = -1;  // before them
};

/// The flags --repetitions and --warmup.
void add_flags(CommandLine& line, Repetitions& repetitions);

/// Takes from `preset` what no flag has set.
void apply_preset(Repetitions& repetitions, const Repetitions& preset);

/// Measures one variant once: numbers such as the seconds of a step's parts.
using MeasureOnce = std::function<std::vector<double>(std::size_t variant)>;

/// Lets the variants take turns, for repetitions.warmup + repetitions.measured repetitions. Who goes first changes
/// from repetition to repetition, so that nobody always follows the same one. Collective. Returns what
/// `measure` returned after the warm-up on this rank: [repetitions, variants, parts], float64 on the
/// CPU. `progress` is of all repetitions, those of the warm-up counted in; other ranks than 0 have none.
at::Tensor measure_interleaved(const Repetitions& repetitions, std::size_t variants,
                               const MeasureOnce& measure, std::optional<Progress>& progress);

/// The largest of all ranks, value by value. Collective.
at::Tensor largest_of_ranks(const at::Tensor& values, const DeviceContext& device_context);

/// One variant's values of one part, from [repetitions, variants, parts]: a series in seconds.
Series series_of(const at::Tensor& times, std::size_t variant, std::size_t part, Parameters labels);

/// Large blocks that are freed go back to the system, and come from it page by page the next time,
/// or they stay on the heap: that depends on what happens to lie above them, often on another
/// variant's. The difference is up to a third of a step, so this keeps freed memory in the process
/// from now on, as the allocators for GPUs do.
void keep_freed_memory();

}  // namespace ddp
