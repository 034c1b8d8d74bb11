#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "measuring/benchmark.h"

namespace ddp {

/// Shows on stderr how far a long job is and how many seconds are left: on a terminal in one line
/// that is rewritten, elsewhere in a new line every ten seconds.
class Progress {
 public:
  /// `what` names the job; it has `total` equal parts. It is shown by rank 0 alone.
  Progress(std::string what, int total, int rank = 0);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear_line(); }

  /// One more part is done.
  void advance();

  /// `parts` parts were done by an earlier run: they say nothing about the time left.
  void skip(int parts) { skipped_ += parts; }

  /// To be called before something else is printed.
  void clear_line() const;

 private:
  const std::string what_;
  const int total_;
  const bool shown_, terminal_;
  int done_ = 0;           // by this run
  int skipped_ = 0;        // by an earlier one
  double last_shown_ = 0;  // seconds since the start
  Stopwatch watch_;
};

/// How often each variant is measured.
struct Repetitions {
  int measured = 1;
  int warmup = 0;  // before the measured ones

  int all() const { return warmup + measured; }
};

/// The flags --repetitions and --warmup.
void add_flags(CLI::App& line, Repetitions& repetitions);

/// Measures one variant once and returns numbers such as the seconds of each part of a step.
using MeasureOnce = std::function<std::vector<double>(std::size_t variant)>;

/// Measures the variants interleaved, in repetitions.warmup + repetitions.measured repetitions. The
/// first variant changes from one repetition to the next, because the order can affect the times.
/// Collective. Returns what `measure` returned after the warm-up on this rank: [repetitions,
/// variants, parts], float64 on the CPU. `progress` counts all repetitions, including the warm-up.
at::Tensor measure_interleaved(const Repetitions& repetitions, std::size_t variants,
                               const MeasureOnce& measure, Progress* progress = nullptr);

/// The seconds that the device works on what `part` queues, which all ranks begin together.
double seconds_together(DeviceTimer& timer, const ProcessGroupPtr& group,
                        const std::function<void()>& part);

/// The maximum over all ranks, value by value. Collective.
at::Tensor largest_of_ranks(const at::Tensor& values, const DeviceContext& device_context);

/// One variant's times of one part, from [repetitions, variants, parts]: a series in seconds.
Series series_of(const at::Tensor& times, std::size_t variant, std::size_t part, Parameters labels);

/// The peak number of bytes of tensors on `device` that are alive at once while `body` runs,
/// counting only what `body` allocates: on the CPU as a MemoryMeter counts, on a GPU as
/// torch.cuda.max_memory_allocated() does, in blocks of 512 bytes.
std::int64_t peak_bytes(const at::Device& device, const std::function<void()>& body);

/// Keeps freed memory in the process from now on, as GPU allocators do. Otherwise a large freed
/// block either returns to the system and comes back page by page, or stays on the heap, depending
/// on what lies above it, often another variant's memory. That changes a step's time by up to a
/// third.
void keep_freed_memory();

}  // namespace ddp
