#pragma once

#include <filesystem>
#include <vector>

#include "harness/result.h"

namespace ddp {

/// A part of a result that is measured at one go, such as one row of a table.
struct Row {
  Parameters labels;  // that tell it from the other rows
  std::vector<Series> series;
};

/// The part of a result that a run has measured when it is stopped, for another run to go on with.
struct PartialResult {
  Run run;
  Parameters parameters;
  std::vector<Row> rows;  // in the order in which they were measured
};

/// <file>.partial: beside the result that it will become, which it leaves alone until then.
std::filesystem::path partial_path(const std::filesystem::path& file);

/// The file appears whole or not at all. Throws as write_result() does.
void write_partial_result(const PartialResult& partial, const std::filesystem::path& file);

/// The rows in `file`; none if there is no such file. Throws c10::ValueError, which names the file
/// and says what to do, if it is corrupt, or was measured in another way than `expected` will be:
/// another program, implementation, preset, device, backend, number of ranks, seed, commit, host,
/// version of libtorch, or other parameters.
std::vector<Row> read_partial_rows(const PartialResult& expected,
                                   const std::filesystem::path& file);

}  // namespace ddp
