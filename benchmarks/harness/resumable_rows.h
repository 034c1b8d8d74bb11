#pragma once

#include <cstddef>
#include <vector>

#include "harness/benchmark.h"

namespace ddp {

/// The flag --resume.
void add_resume_flag(CLI::App& line, BenchmarkOptions& options);

/// A result that grows row by row, and is saved after each, so that a stopped run can continue. All
/// ranks have one; rank 0's keeps the numbers and the file.
///
///     ResumableRows rows(settings, {.run = to_run(...), .parameters = ...}, device_context);
///     for (const Size& size : sizes) {
///       const Parameters labels = {{"bytes", size.bytes}};
///       if (!rows.has(labels)) {
///         rows.add(labels, measure(size));
///       }
///     }
///     rows.finish();
///
/// A run that is stopped anywhere and resumed ends with the same rows, labels and order as an
/// uninterrupted one, provided that both visit the same rows in the same order.
class ResumableRows {
 public:
  /// `header` says what is measured and how; it has no series. With options.resume the rows that an
  /// earlier run saved are taken over, and rank 0 prints their number; throws c10::ValueError on
  /// rank 0 if they were measured in another way. Without it this run's first row overwrites them.
  /// Throws std::runtime_error on rank 0 if the file cannot be written. Both references must
  /// outlive it.
  ResumableRows(const BenchmarkOptions& options, Result header,
                const DeviceContext& device_context);

  /// True if the row with these labels has been measured. Collective: all ranks get the same
  /// answer.
  bool has(const Parameters& labels) const;

  /// Rank 0 saves; on other ranks `series` is ignored. Each series gets the row's labels, followed
  /// by its own. A row may be measured value by value: later calls go on with its series, which must
  /// be the same ones in the same order.
  void add(const Parameters& labels, std::vector<Series> series);

  /// How many values the series of the row with these labels have, on rank 0; 0 if there is no such
  /// row, and on other ranks. Not collective.
  std::size_t repetitions_of(const Parameters& labels) const;

  /// Rank 0 replaces the partial file by the complete result, prints its path to stdout, and
  /// returns it. On other ranks the result is empty.
  Result finish();

 private:
  bool is_first() const { return device_context_.group->getRank() == 0; }

  const BenchmarkOptions& options_;
  const DeviceContext& device_context_;
  Result result_;
  const std::filesystem::path file_;
  std::vector<Row> rows_;  // on rank 0 only
};

}  // namespace ddp
