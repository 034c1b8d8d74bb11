#pragma once

#include <set>
#include <string>

#include "harness/benchmark.h"
#include "harness/published_cluster.h"

namespace ddp {

constexpr const char* kComparedModel = "resnet50";

/// How much is trained. Negative or empty: the preset's.
struct ComparisonAmount {
  std::set<int> buffer_sizes = {};  // in M elements
  int batch = -1;                   // samples per rank
  int image = -1;                   // pixels per side
  int iterations = -1;              // per variant and buffer size
  int discarded = -1;               // the first of these iterations
};

struct ComparisonSettings : BenchmarkOptions {
  ComparisonAmount amount;
  // How it is measured: by default as in PyTorch's script, but for its interleaved variants.
  std::string loss = "mse";        // against random numbers in [0, 1); or "cross-entropy"
  std::string times_of = "rank0";  // whose seconds count; or "slowest"
  bool broadcasts_buffers = true;  // core, before forward
  ClusterFlags cluster;
};

/// One rank's part: libtorch's Reducer ("core" and "core, equal bytes") and stage 03 ("async" and
/// "sync") train ResNet-50s with buffers of several sizes. Saves the result, complete on rank 0: a
/// series for each buffer size, variant and direction. Unfinished variants are left out with a
/// message (see usable_variants()). Collective. Throws c10::Error if the model is not the published
/// one, or a variant has not core's gradients.
Result compare_on_ranks(const ComparisonSettings& settings, const DeviceContext& device_context);

/// compare_ddp at its published scale, in virtual time: "core", "core, equal bytes", and the two
/// reductions of the published Python DDP, "async" and "sync"; then "stage 03", with buffers of the
/// same size. Series are those of compare_on_ranks(), of one value each. Throws c10::ValueError for
/// flags and calibrations that do not fit, c10::NotImplementedError if stage 03 is not written.
Result compare_at_published_scale(const ComparisonSettings& settings);

/// Prints the published summaries to stdout. All of a variant's iterations take the same time, so
/// that of the published statistics only the mean is left.
void print_published_summaries(const Result& result);

}  // namespace ddp
