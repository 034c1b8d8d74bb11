#include "ddp/measurement.h"

#include <c10/util/Exception.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "ddp/result_json.h"
#include "ddp/whole_file.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

// What follows the colon in the first line that starts with `key`, as in /proc/cpuinfo.
std::string value_in_file(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos) {
      return line.substr(std::min(line.find_first_not_of(" \t", colon + 1), line.size()));
    }
  }
  return "unknown";
}

std::string host_name() {
  char name[256] = "unknown";
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string utc_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string commit() {
  const char* commit = std::getenv("DDP_LAB_COMMIT");
  return commit && *commit ? commit : "unknown";
}

Json to_json(const Series& series) {
  check_finite(series);
  const Summary summary = summarize(series.values);
  return {{"labels", parameters_json(series.labels)},
          {"unit", series.unit},
          {"summary",
           {{"mean", summary.mean},
            {"p50", summary.p50},
            {"p90", summary.p90},
            {"p95", summary.p95},
            {"p99", summary.p99}}},
          {"values", series.values}};
}

}  // namespace

Json parameters_json(const Parameters& parameters) {
  Json object = Json::object();
  for (const auto& [name, value] : parameters) {
    std::visit([&object, &name = name](const auto& plain) { object[name] = plain; }, value);
  }
  return object;
}

void check_finite(const Series& series) {
  for (const double value : series.values) {
    TORCH_CHECK_VALUE(std::isfinite(value), "a measured value is ", value, ", in the series ",
                      parameters_json(series.labels).dump());
  }
}

Json provenance_json(const Run& run) {
  const auto pages = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES));
  return {{"host", host_name()},
          {"cpu", value_in_file("/proc/cpuinfo", "model name")},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", pages * sysconf(_SC_PAGE_SIZE)},
          {"gpu", gpu_names()},
          {"torch", TORCH_VERSION},
          {"backend", run.backend},
          {"device", run.device},
          {"implementation", run.implementation},
          {"preset", run.preset},
          {"world_size", run.world_size},
          {"seed", run.seed},
          {"commit", commit()},
          {"date", utc_date()},
          {"command", run.command}};
}

std::string gpu_names() {
  std::string names;
  std::error_code ignored;  // no driver, no folder: no GPU
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    names += (names.empty() ? "" : ", ") + value_in_file(gpu.path() / "information", "Model");
  }
  return names.empty() ? "none" : names;
}

double percentile(std::vector<double> values, double percent) {
  TORCH_CHECK_VALUE(!values.empty(), "a percentile of no values");
  TORCH_CHECK_VALUE(0 <= percent && percent <= 100, "percent is ", percent, ", not in [0, 100]");
  std::ranges::sort(values);
  const double position = percent / 100 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], position - static_cast<double>(below));
}

Summary summarize(const std::vector<double>& values) {
  TORCH_CHECK_VALUE(!values.empty(), "a summary of no values");
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.mean = sum / static_cast<double>(values.size()),
          .p50 = percentile(values, 50),
          .p90 = percentile(values, 90),
          .p95 = percentile(values, 95),
          .p99 = percentile(values, 99)};
}

double Stopwatch::lap() {
  const Clock::time_point now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(start_, now)).count();
}

fs::path default_result_path(const Run& run) {
  return fs::path("figures") / "data" /
         (run.program + "." + run.implementation + "." + run.preset + ".json");
}

void write_result(const Result& result, const fs::path& file) {
  Json series = Json::array();
  for (const Series& one : result.series) {
    series.push_back(to_json(one));
  }
  const Json document = {{"schema_version", kSchemaVersion},
                         {"program", result.run.program},
                         {"provenance", provenance_json(result.run)},
                         {"parameters", parameters_json(result.parameters)},
                         {"series", series}};
  write_whole_file(file, document.dump(1) + "\n", "--output");
}

}  // namespace ddp
