#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/benchmark.h"
#include "harness/progress.h"

namespace ddp {

/// How often each variant is measured. Negative: the preset's.
struct Repetitions {
  int measured = -1;
  int warmup = -1;  // before the measured ones
};

/// The flags --repetitions and --warmup.
void add_flags(CLI::App& line, Repetitions& repetitions);

/// Sets from `preset` what no flag has set.
void apply_preset(Repetitions& repetitions, const Repetitions& preset);

/// Measures one variant once and returns numbers such as the seconds of each part of a step.
using MeasureOnce = std::function<std::vector<double>(std::size_t variant)>;

/// Measures the variants interleaved, in repetitions.warmup + repetitions.measured repetitions. The
/// first variant changes from one repetition to the next, because the order can affect the times.
/// Collective. Returns what `measure` returned after the warm-up on this rank: [repetitions,
/// variants, parts], float64 on the CPU. `progress` counts all repetitions, including the warm-up;
/// only rank 0 has one.
at::Tensor measure_interleaved(const Repetitions& repetitions, std::size_t variants,
                               const MeasureOnce& measure, std::optional<Progress>& progress);

/// The maximum over all ranks, value by value. Collective.
at::Tensor largest_of_ranks(const at::Tensor& values, const DeviceContext& device_context);

/// One variant's times of one part, from [repetitions, variants, parts]: a series in seconds.
Series series_of(const at::Tensor& times, std::size_t variant, std::size_t part, Parameters labels);

/// Keeps freed memory in the process from now on, as GPU allocators do. Otherwise a large freed
/// block either returns to the system and comes back page by page, or stays on the heap, depending
/// on what lies above it, often another variant's memory. That changes a step's time by up to a
/// third.
void keep_freed_memory();

}  // namespace ddp
