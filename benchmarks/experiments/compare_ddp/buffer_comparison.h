#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "harness/benchmark.h"
#include "harness/interleaved.h"
#include "harness/published_cluster.h"
#include "harness/trainer.h"
#include "harness/workload.h"

namespace ddp {

/// How much a BufferComparison trains.
struct ComparisonSize {
  int batch = -1;       // samples per rank
  int image = -1;       // pixels per side
  int iterations = -1;  // per variant and buffer size
  int discarded = -1;   // the first of these iterations
};

/// How it is measured: by default as in PyTorch's script, but for its interleaved variants.
struct Procedure {
  std::string loss = "mse";        // against random numbers in [0, 1); or "cross-entropy"
  std::string times_of = "rank0";  // whose seconds count; or "slowest"
  bool broadcasts_buffers = true;  // core, before forward
};

/// One rank's part of benchmarks/experiments/compare_ddp/compare_ddp.cpp: libtorch's Reducer
/// ("core" and "core, equal bytes") and stage 03 ("async" and "sync") train ResNet-50s with buffers
/// of several sizes. Each variant keeps one model; its synchronizer is made anew for each buffer
/// size.
class BufferComparison {
 public:
  static constexpr const char* kModel = "resnet50";

  /// Collective. Unfinished variants are left out with a message (see usable_variants()). The
  /// references must outlive it. Throws c10::Error if the model is not the published one.
  BufferComparison(const BenchmarkOptions& options, const ComparisonSize& size,
                   const Procedure& procedure, const DeviceContext& device_context);

  /// The available variants; "core" is the first.
  std::vector<std::string> variants() const;

  const ModelSummary& model() const { return summary_; }

  /// Collective. On rank 0 the seconds of each counted iteration: a series for each variant and
  /// direction ("forward" and "backward"). Buffers hold buffer_size * 2^20 elements; see
  /// all_candidates() for the caps. The first call checks that all variants have core's gradients,
  /// and throws c10::Error if one does not.
  std::vector<Series> measure(int buffer_size, Progress& progress);

 private:
  // One of the compared synchronizers.
  struct Candidate {
    const char* label;
    const char* variant;     // see all_variants()
    std::int64_t cap_bytes;  // per bucket, for each M (2^20) of the buffer size
  };
  static const std::vector<Candidate>& all_candidates();

  std::vector<Trainer> make_trainers(int buffer_size);
  void check_once(std::vector<Trainer>& trainers);
  std::vector<double> iterate(Trainer& trainer);

  const ComparisonSize& size_;
  const Procedure& procedure_;
  const DeviceContext& device_context_;
  const LabelledBatch batch_;
  const std::unique_ptr<DeviceTimer> timer_;
  std::vector<Candidate> candidates_;
  std::vector<std::unique_ptr<Model>> models_;  // one for each candidate
  ModelSummary summary_;
  bool checked_ = false;
};

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
