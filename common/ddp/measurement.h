#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ddp {

/// The value below which `percent` of the values lie, with linear interpolation between neighbours,
/// as numpy's default does. Throws c10::ValueError for no values, or a percent outside [0, 100].
double percentile(std::vector<double> values, double percent);

/// The numbers that published tables give.
struct Summary {
  double mean, p50, p90, p95, p99;
};
Summary summarize(const std::vector<double>& values);

/// Real time since construction, or since the last lap.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  /// The seconds so far; starts again from zero.
  double lap();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

/// Named values, in the order in which they are to be read.
using Parameters =
    std::vector<std::pair<std::string, std::variant<std::int64_t, double, std::string>>>;

/// One quantity measured again and again, and the labels that tell it from the others, such as
/// {{"variant", "naive"},
/// {"phase", "forward"}}.
struct Series {
  Parameters labels;
  std::string unit;            // "s", "bytes", "GB/s"
  std::vector<double> values;  // one for each repetition, in the order of measurement
};

/// Who measured what: with the machine's description it is the provenance that every result
/// carries.
struct Run {
  std::string program;         // "naive_vs_flat"
  std::string implementation;  // "assignments" or "solutions"
  std::string preset;          // "quick", "full", "paper"
  std::string backend;         // "gloo", "nccl"
  std::string device;          // "cpu", "cuda"
  int world_size = 1;
  std::uint64_t seed = 0;
  std::string command;  // the command line that repeats it
};

struct Result {
  Run run;
  Parameters parameters;
  std::vector<Series> series;
};

/// The models of this machine's NVIDIA GPUs, "A, A", or "none".
std::string gpu_names();

/// figures/data/<program>.<implementation>.<preset>.json, relative to the repository's root.
std::filesystem::path default_result_path(const Run& run);

/// Writes `result` as the JSON that figures/schema.json describes, together with the machine,
/// libtorch's version, the date, and the commit from the environment variable DDP_LAB_COMMIT. Makes
/// missing folders. The file appears whole or not at all. Throws c10::ValueError for a series
/// without values or with values that are not finite; std::runtime_error, which names the file and
/// the reason, where it cannot be written.
void write_result(const Result& result, const std::filesystem::path& file);

}  // namespace ddp
