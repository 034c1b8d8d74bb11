#pragma once

#include <set>

#include "experiments/compare_ddp/buffer_comparison.h"
#include "harness/benchmark.h"
#include "harness/published_cluster.h"

namespace ddp {

/// compare_ddp at its published scale, in virtual time: "core", "core, equal bytes", and the two
/// reductions of the published Python DDP, "async" and "sync"; then "stage 03", with buffers of the
/// same size. Series are those of BufferComparison, of one value each. Throws
/// c10::ValueError for flags and calibrations that do not fit, c10::NotImplementedError if stage 03
/// is not written.
Result compare_at_published_scale(const BenchmarkOptions& options, const ComparisonSize& size,
                                  const std::set<int>& buffer_sizes, const ClusterFlags& flags);

/// Prints the published summaries to stdout. All of a variant's iterations take the same time, so
/// that of the published statistics only the mean is left.
void print_published_summaries(const Result& result);

}  // namespace ddp
