#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <vector>

#include "ddp/benchmark.h"
#include "ddp/partial_result.h"

namespace ddp {

/// The flag --resume.
void add_resume_flag(CLI::App& app, BenchmarkOptions& options);

/// A result that grows cell by cell, and is saved after each, so that a stopped run can go on. All
/// ranks have one; rank 0's keeps the numbers and the file.
///
///     Cells cells(settings, {.run = to_run(...), .parameters = ..., .cells = {}}, workplace);
///     for (const Size& size : sizes) {
///       const Parameters labels = {{"bytes", size.bytes}};
///       if (!cells.has(labels)) {
///         cells.add(labels, measure(size));
///       }
///     }
///     cells.finish();
///
/// A run that is stopped anywhere and resumed ends with the cells, labels and order of a whole one,
/// as long as both go through the same cells in the same order.
class Cells {
 public:
  /// `header` says what is measured, and in which way; it has no cells. With options.resume the
  /// cells that an earlier run saved are taken over, and rank 0 says how many; throws
  /// c10::ValueError on rank 0 if they were measured in another way. Without it an earlier run's
  /// are overwritten by this run's first cell. Throws std::runtime_error on rank 0 where nothing
  /// can be written. Both references must outlive it.
  Cells(const BenchmarkOptions& options, PartialResult header, const Workplace& workplace);

  /// True if the cell with these labels has been measured. Collective: the same on all ranks.
  bool has(const Parameters& labels) const;

  /// Rank 0 saves; other ranks may call it with anything. Each series has the cell's labels, and
  /// then its own.
  void add(const Parameters& labels, std::vector<Series> series);

  /// Rank 0 writes the whole result in the place of its parts, says so on stdout, and returns it.
  /// On other ranks the result is empty.
  Result finish();

 private:
  bool is_first() const { return workplace_.group->getRank() == 0; }

  const BenchmarkOptions& options_;
  const Workplace& workplace_;
  PartialResult partial_;  // with cells on rank 0 only
};

}  // namespace ddp
