#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ddp/meters/statistics.h"
#include "experiments/train_cifar100/cifar_trainer.h"
#include "harness/benchmark.h"

namespace ddp {

/// One training: an implementation (kSelfmade or kPytorch) and a seed.
struct CifarRun {
  std::string distributed_impl;
  std::int64_t seed = 0;

  Parameters labels() const { return {{"distributed_impl", distributed_impl}, {"seed", seed}}; }
};

/// Every rank's numbers, gathered on all ranks: [world, n], float64 on the CPU. Collective.
at::Tensor gather_numbers(const std::vector<double>& numbers, const DeviceContext& device_context);

// A record holds all ranks' numbers of each epoch: float64 [epochs, world, 7] on the CPU.

at::Tensor empty_cifar_record(const DeviceContext& device_context);

/// The record with one more epoch. Collective: numbers are gathered.
at::Tensor add_cifar_epoch(const at::Tensor& record, const CifarEpoch& trained,
                           const CifarValidation& validated, const DeviceContext& device_context);

/// The series of a row, for each epoch: what rank 0 reported last, "running loss" and "batch
/// accuracy", the published metrics; loss and accuracy in validation, over all ranks' images; each
/// rank's seconds of training and validation. For each rank also the peak memory in bytes, from
/// `peaks` [world, 1].
std::vector<Series> cifar_series(const at::Tensor& record, const at::Tensor& peaks);

/// Checks that the code of assignments/ or solutions/ has what kSelfmade needs: the stage of `ddp`,
/// and stage 04. Loads them. Collective. Throws c10::NotImplementedError that names what is
/// unfinished.
void require_cifar_stages(const std::string& ddp, const std::string& implementation,
                          const DeviceContext& device_context);

/// What a run prints to stdout, on rank 0 only.
class CifarLog {
 public:
  struct Options {
    int rank = 0;
    std::int64_t epochs = 0;  // epochs per row
    std::string data;         // CifarData::kind
  };
  explicit CifarLog(Options options) : options_(std::move(options)) {}

  /// The "Experimental setup" of the published text.
  void set_up(const Run& run, const Parameters& parameters) const;

  /// Says how many rows will be trained.
  void expect(std::size_t rows) { rows_ = rows; }

  /// Prints loss and accuracy as the published program does.
  void report(const CifarReport& report) const;

  /// Prints a line: loss and accuracy in validation, and the time left for all rows.
  void epoch_done(const CifarRun& row, const at::Tensor& record);

  /// Prints the published table: each rank's time and memory, and the last report.
  void row_done(const CifarRun& row, const at::Tensor& record, const at::Tensor& peaks) const;

  /// Prints a line for each implementation: means and standard deviations over its seeds.
  void summary(const Result& result, const std::vector<std::string>& implementations) const;

 private:
  const Options options_;
  std::size_t rows_ = 0;
  std::int64_t done_ = 0;  // epochs
  Stopwatch watch_;
};

}  // namespace ddp
