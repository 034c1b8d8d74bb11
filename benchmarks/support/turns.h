#pragma once

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddp/benchmark.h"
#include "ddp/progress.h"

namespace ddp {

/// How often each variant is measured. Negative: the preset's.
struct Rounds {
  int measured = -1;
  int warmup = -1;  // before them
};

/// The flags --rounds and --warmup.
void add_flags(CLI::App& app, Rounds& rounds);

/// Takes from `preset` what no flag has set.
void apply_preset(Rounds& rounds, const Rounds& preset);

/// Measures one variant once: numbers such as the seconds of a step's parts.
using MeasureTurn = std::function<std::vector<double>(std::size_t variant)>;

/// Lets the variants take turns, for rounds.warmup + rounds.measured rounds. Who goes first changes
/// from round to round, so that nobody always follows the same one. Collective. Returns what
/// `measure` returned after the warm-up on this rank: [rounds, variants, parts], float64 on the
/// CPU. `progress` is of all rounds, those of the warm-up counted in; other ranks than 0 have none.
at::Tensor take_turns(const Rounds& rounds, std::size_t variants, const MeasureTurn& measure,
                      std::optional<Progress>& progress);

/// The largest of all ranks, value by value. Collective.
at::Tensor largest_of_ranks(const at::Tensor& values, const Workplace& workplace);

/// One variant's values of one part, from [rounds, variants, parts]: a series in seconds.
Series series_of(const at::Tensor& times, std::size_t variant, std::size_t part, Parameters labels);

/// Large blocks that are freed go back to the system, and come from it page by page the next time,
/// or they stay on the heap: that depends on what happens to lie above them, often on another
/// variant's. The difference is up to a third of a step, so this keeps freed memory in the process
/// from now on, as the allocators for GPUs do.
void keep_freed_memory();

}  // namespace ddp
