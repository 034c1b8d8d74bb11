#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/benchmark.h"
#include "ddp/device_timer.h"
#include "ddp/progress.h"
#include "support/model_summary.h"
#include "support/trainer.h"
#include "support/workload.h"

namespace ddp {

/// How much a BufferContest trains.
struct ContestSize {
  int batch = -1;       // samples of a rank
  int image = -1;       // pixels of a side
  int iterations = -1;  // of each variant and buffer size
  int discarded = -1;   // the first of them
};

/// What one rank does in benchmarks/compare_ddp.cpp: libtorch's Reducer ("core" and "core, equal
/// bytes") and stage 03 ("async" and "sync") train ResNet-50s with buffers of some size. Each
/// variant has one model, which it keeps; what synchronizes it is made anew for each buffer size.
class BufferContest {
 public:
  static constexpr const char* kModel = "resnet50";

  /// Collective. Variants that are unfinished are left out by name (see usable_variants()). The
  /// references must outlive it. Throws c10::Error if the model is not the published one.
  BufferContest(const BenchmarkOptions& options, const ContestSize& size,
                const Workplace& workplace);

  /// The variants that are there; "core" is the first.
  std::vector<std::string> variants() const;

  const ModelSummary& model() const { return summary_; }

  /// Collective. Seconds of each iteration that counts, of the slowest rank: a series for each
  /// variant and direction ("forward" and "backward"). Buffers hold buffer_size * 2^20 elements;
  /// see all_contestants() for the caps. The first call checks that all variants come to
  /// core's gradients, and throws c10::Error if one does not.
  std::vector<Series> measure(int buffer_size, std::optional<Progress>& progress);

 private:
  // Who is compared.
  struct Contestant {
    const char* label;
    const char* variant;     // see all_variants()
    std::int64_t cap_bytes;  // of a bucket, for each M (2^20) of the buffer size
  };
  static const std::vector<Contestant>& all_contestants();

  std::vector<Trainer> make_trainers(int buffer_size);
  void check_once(std::vector<Trainer>& trainers);
  std::vector<double> iterate(Trainer& trainer);

  const ContestSize& size_;
  const Workplace& workplace_;
  const LabelledBatch batch_;
  const std::unique_ptr<DeviceTimer> timer_;
  std::vector<Contestant> contestants_;
  std::vector<std::unique_ptr<Model>> models_;  // one for each contestant
  ModelSummary summary_;
  bool checked_ = false;
};

}  // namespace ddp
