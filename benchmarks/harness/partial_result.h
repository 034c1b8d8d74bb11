#pragma once

#include <filesystem>
#include <vector>

#include "harness/result.h"

namespace ddp {

/// A part of a result that is measured in one go, such as one row of a table.
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

/// The file appears complete or not at all. Throws as write_result() does.
void write_partial_result(const PartialResult& partial, const std::filesystem::path& file);

/// The rows in `file`; none if there is no such file. Throws c10::ValueError, which names the file
/// and says what to do, if the file is corrupt or does not match `expected`: another program,
/// implementation, preset, device, backend, number of ranks, seed, commit, host, version of
/// libtorch, or other parameters.
std::vector<Row> read_partial_rows(const PartialResult& expected,
                                   const std::filesystem::path& file);

}  // namespace ddp
