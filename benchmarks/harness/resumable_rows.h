#pragma once

#include <cstddef>
#include <vector>

#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/partial_result.h"

namespace ddp {

/// The flag --resume.
void add_resume_flag(CommandLine& line, BenchmarkOptions& options);

/// A result that grows row by row, and is saved after each, so that a stopped run can go on. All
/// ranks have one; rank 0's keeps the numbers and the file.
///
///     ResumableRows rows(settings, {.run = to_run(...), .parameters = ..., .rows = {}}, device_context);
///     for (const Size& size : sizes) {
///       const Parameters labels = {{"bytes", size.bytes}};
///       if (!rows.has(labels)) {
///         rows.add(labels, measure(size));
///       }
///     }
///     rows.finish();
///
/// A run that is stopped anywhere and resumed ends with the rows, labels and order of a whole one,
/// as long as both go through the same rows in the same order.
class ResumableRows {
 public:
  /// `header` says what is measured, and in which way; it has no rows. With options.resume the
  /// rows that an earlier run saved are taken over, and rank 0 says how many; throws
  /// c10::ValueError on rank 0 if they were measured in another way. Without it an earlier run's
  /// are overwritten by this run's first row. Throws std::runtime_error on rank 0 where nothing
  /// can be written. Both references must outlive it.
  ResumableRows(const BenchmarkOptions& options, PartialResult header,
                const DeviceContext& device_context);

  /// True if the row with these labels has been measured. Collective: the same on all ranks.
  bool has(const Parameters& labels) const;

  /// Rank 0 saves; other ranks may call it with anything. Each series has the row's labels, and
  /// then its own.
  void add(const Parameters& labels, std::vector<Series> series);

  /// Rank 0 writes the whole result in the place of its parts, says so on stdout, and returns it.
  /// On other ranks the result is empty.
  Result finish();

 private:
  bool is_first() const { return device_context_.group->getRank() == 0; }

  const BenchmarkOptions& options_;
  const DeviceContext& device_context_;
  PartialResult partial_;  // with rows on rank 0 only
};

}  // namespace ddp
