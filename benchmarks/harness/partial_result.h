#pragma once

#include <filesystem>
#include <vector>

#include "harness/result.h"

namespace ddp {

/// A part of a result, such as one row of a table.
struct Row {
  Parameters labels;  // distinguish it from the other rows
  std::vector<Series> series;
};

/// What a run has measured by the time it is stopped, for another run to continue.
struct PartialResult {
  Run run;
  Parameters parameters;
  std::vector<Row> rows;  // in the order in which they were measured
};

/// <file>.partial, next to the final result, which stays untouched until the run is complete.
std::filesystem::path partial_path(const std::filesystem::path& file);

/// Adds a row; one with the labels of an earlier one goes on with the values of its series.
void add_row(std::vector<Row>& rows, Row row);

/// The same in `file`, which has a line of JSON for each row, and before them one that says what is
/// measured and how. With `anew` the file begins with this row. Throws as write_result() does.
void append_row(const PartialResult& header, const Row& row, const std::filesystem::path& file,
                bool anew);

/// The rows in `file`; none if there is no such file. A last line that was not finished is cut off.
/// Throws c10::ValueError, which names the file
/// and says what to do, if the file is corrupt or does not match `expected`: another program,
/// implementation, preset, device, backend, number of ranks, seed, commit, host, version of
/// libtorch, or other parameters.
std::vector<Row> read_partial_rows(const PartialResult& expected,
                                   const std::filesystem::path& file);

}  // namespace ddp
