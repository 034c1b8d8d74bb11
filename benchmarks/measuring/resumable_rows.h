#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "measuring/benchmark.h"
#include "measuring/interleaved.h"

namespace ddp {

/// The flag --resume.
void add_resume_flag(CLI::App& line, BenchmarkOptions& options);

/// A result that grows row by row, and is saved after each, so that a stopped run can continue. All
/// ranks have one; rank 0's keeps the numbers and the file.
///
///     ResumableRows rows(settings, {.run = to_run(...), .parameters = ...}, device_context);
///     for (const Size& size : sizes) {
///       rows.measure({{"bytes", size.bytes}}, progress, 1, [&] { return measure(size); });
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

  /// Adds the row with these labels, unless it has been measured: then `parts` of the progress are
  /// skipped. Collective.
  void measure(const Parameters& labels, Progress& progress, int parts,
               const std::function<std::vector<Series>()>& series);

  /// How many values the series of the row with these labels have, on rank 0; 0 if there is no such
  /// row, and on other ranks. Not collective.
  std::size_t repetitions_of(const Parameters& labels) const;

  /// Rank 0 replaces the partial file by the complete result, prints its path to stdout, and
  /// returns it. On other ranks the result has no series. Before that, all ranks call `complete`,
  /// which may add to the result.
  Result finish(const std::function<void(Result&)>& complete = {});

 private:
  bool is_first() const { return device_context_.group->getRank() == 0; }

  const BenchmarkOptions& options_;
  const DeviceContext& device_context_;
  Result result_;
  const std::filesystem::path file_;
  std::vector<Row> rows_;  // on rank 0 only
};

// For programs that measure several world sizes, one after the other, and write one result.

/// The world sizes to run: that of --world-size if it is given; under a launcher, the
/// one they started; else `preset`. Call it after the command line has been parsed.
std::vector<int> choose_worlds(const CLI::App& line, const BenchmarkOptions& options,
                               const std::vector<int>& preset);

/// Describes in --help what --world-size means for such a program.
void describe_worlds(CLI::App& line, const std::vector<int>& preset);

/// The header of the result of all `worlds`, for ResumableRows: the same in each of them. `run` is
/// this world's; the result has the last world's number of ranks, and, on GPUs, the names of the
/// backends of all worlds: NCCL where every rank has a GPU of its own, else Gloo. "worlds" is added
/// after `parameters`.
Result header_of_worlds(const std::vector<int>& worlds, Run run, Parameters parameters);

}  // namespace ddp
