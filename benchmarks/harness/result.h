#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ddp {

/// Named values, in the order in which they are shown.
using Parameters =
    std::vector<std::pair<std::string, std::variant<std::int64_t, double, std::string>>>;

/// One quantity measured repeatedly, and the labels that distinguish it from the others, such as
/// {{"variant", "naive"}, {"phase", "forward"}}.
struct Series {
  Parameters labels;
  std::string unit;            // "s", "bytes", "GB/s"
  std::vector<double> values;  // one for each repetition, in the order of measurement
};

/// Who measured what. Together with the description of the machine it is the provenance that every
/// result carries.
struct Run {
  std::string program;         // "naive_vs_flat"
  std::string implementation;  // "assignments" or "solutions"
  std::string preset;          // "quick", "full", "paper"
  std::string backend;         // "gloo", "nccl"
  std::string device;          // "cpu", "cuda"
  int world_size = 1;
  std::uint64_t seed = 0;
  std::string command;  // repeats this run
};

struct Result {
  Run run;
  Parameters parameters;
  std::vector<Series> series;
};

}  // namespace ddp
