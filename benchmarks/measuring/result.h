#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ddp {

/// Named values, in the order in which they are shown.
using Parameters =
    std::vector<std::pair<std::string, std::variant<std::int64_t, double, std::string>>>;
Parameters joined(Parameters first, const Parameters& more);

/// One quantity measured repeatedly, and the labels that distinguish it from the others, such as
/// {{"variant", "naive"}, {"phase", "forward"}}.
struct Series {
  Parameters labels;
  std::string unit;            // "s", "bytes", "GB/s"
  std::vector<double> values;  // one for each repetition, in the order of measurement
};

/// The label of that name, if there is one.
template <typename Value>
std::optional<Value> label_of(const Series& series, const std::string& name) {
  for (const auto& [own, value] : series.labels) {
    if (own == name) {
      return std::get<Value>(value);
    }
  }
  return std::nullopt;
}

/// A time that is the same in every repetition.
Series exact_time(Parameters labels, double seconds);
inline double in_seconds(std::int64_t ns) { return 1e-9 * static_cast<double>(ns); }

/// Who measured what. Together with the description of the machine it is the provenance that every
/// result carries.
struct Run {
  std::string program;         // "naive_vs_flat"
  std::string implementation;  // "assignments" or "solutions"
  std::string preset;          // "quick", "full", "paper"
  std::string backend = {};    // "gloo", "nccl"
  std::string device = {};     // "cpu", "cuda"
  int world_size = 1;
  std::uint64_t seed = 0;
  std::string command = {};  // repeats this run
};

struct Result {
  Run run;
  Parameters parameters;
  std::vector<Series> series = {};
};

/// figures/data/<program>.<implementation>.<preset>.json, relative to the repository's root.
std::filesystem::path default_result_path(const Run& run);

/// Writes `result` as JSON as figures/lib/schema.json describes it, together with the machine,
/// libtorch's version, the date, and the commit from the environment variable DDP_LAB_COMMIT.
/// Creates missing folders. The file appears complete or not at all. Throws c10::ValueError for a
/// series without values or with values that are not finite; std::runtime_error, which names the
/// file and the reason, if it cannot be written.
void write_result(const Result& result, const std::filesystem::path& file);

/// A part of a result, such as one row of a table.
struct Row {
  Parameters labels;  // distinguish it from the other rows
  std::vector<Series> series;
};

/// <file>.partial, next to the final result, which stays untouched until the run is complete.
std::filesystem::path partial_path(const std::filesystem::path& file);

/// Adds a row; one with the labels of an earlier one goes on with the values of its series.
void add_row(std::vector<Row>& rows, Row row);

/// The same in `file`, which has a line of JSON for each row, and before them one that says what is
/// measured and how: `header`, a result without series. With `anew` the file begins with this row.
/// Throws as write_result() does.
void append_row(const Result& header, const Row& row, const std::filesystem::path& file, bool anew);

/// The rows in `file`; none if there is no such file. A last line that was not finished is cut off.
/// Throws c10::ValueError, which names the file and says what to do, if the file is corrupt or does
/// not match `header`: another program, implementation, preset, device, backend, number of ranks,
/// seed, commit, host, version of libtorch, or other parameters.
std::vector<Row> read_rows(const Result& header, const std::filesystem::path& file);

/// The models of the NVIDIA GPUs here, "A, A", or "none".
std::string gpu_names();

}  // namespace ddp
