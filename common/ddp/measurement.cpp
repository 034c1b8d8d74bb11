#include "ddp/measurement.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <thread>

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

std::string gpu_names() {
  std::string names;
  std::error_code ignored;  // no driver, no folder: no GPU
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    names += (names.empty() ? "" : ", ") + value_in_file(gpu.path() / "information", "Model");
  }
  return names.empty() ? "none" : names;
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

Json to_json(const Parameters& parameters) {
  Json object = Json::object();
  for (const auto& [name, value] : parameters) {
    std::visit([&object, &name = name](const auto& plain) { object[name] = plain; }, value);
  }
  return object;
}

Json to_json(const Series& series) {
  for (double value : series.values) {
    TORCH_CHECK_VALUE(std::isfinite(value), "a measured value is ", value, ", in the series ",
                      to_json(series.labels).dump());
  }
  const Summary summary = summarize(series.values);
  return {{"labels", to_json(series.labels)},
          {"unit", series.unit},
          {"summary",
           {{"mean", summary.mean},
            {"p50", summary.p50},
            {"p90", summary.p90},
            {"p95", summary.p95},
            {"p99", summary.p99}}},
          {"values", series.values}};
}

Json provenance(const Run& run) {
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

[[noreturn]] void fail(const fs::path& file, int error) {
  throw std::runtime_error("cannot write " + file.string() + ": " + std::strerror(error) +
                           "; choose another place with --output");
}

// 0, or the errno of the write that failed.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      return errno;
    }
    text.remove_prefix(std::max<ssize_t>(written, 0));
  }
  return 0;
}

// Under a name of its own in the same folder first, then renamed: nobody ever sees half a file.
void write_atomically(const fs::path& file, std::string_view text) {
  std::error_code error;
  if (file.has_parent_path()) {
    fs::create_directories(file.parent_path(), error);
    if (error) {
      fail(file, error.value());
    }
  }
  std::string temporary = file.string() + ".XXXXXX";
  const int descriptor = mkstemp(temporary.data());
  if (descriptor < 0) {
    fail(file, errno);
  }
  fchmod(descriptor, 0644);  // mkstemp lets nobody else read it
  int problem = write_all(descriptor, text);
  if (close(descriptor) != 0 && problem == 0) {
    problem = errno;
  }
  if (problem == 0 && rename(temporary.c_str(), file.c_str()) != 0) {
    problem = errno;
  }
  if (problem != 0) {
    unlink(temporary.c_str());
    fail(file, problem);
  }
}

}  // namespace

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
                         {"provenance", provenance(result.run)},
                         {"parameters", to_json(result.parameters)},
                         {"series", series}};
  write_atomically(file, document.dump(1) + "\n");
}

}  // namespace ddp
