#include "measuring/result.h"

#include <c10/util/Exception.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "ddp/meters/statistics.h"
#include "ddp/meters/whole_file.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

// The fields of the provenance that a resumed run must share; the date and the command line need not.
constexpr const char* kAgreeing[] = {"implementation", "preset", "device", "backend",
                                     "world_size",     "seed",   "commit", "torch",
                                     "host",           "cpu",    "gpu"};

constexpr const char* kRemedy = "; leave out --resume to start over";

std::string host_name() {
  char name[256] = "unknown";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// The text after the colon in the first line that starts with `key`, as in /proc/cpuinfo.
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

Parameters to_parameters(const Json& object) {
  Parameters parameters;
  for (const auto& [name, value] : object.items()) {
    if (value.is_string()) {
      parameters.emplace_back(name, value.get<std::string>());
    } else if (value.is_number_integer()) {
      parameters.emplace_back(name, value.get<std::int64_t>());
    } else {
      parameters.emplace_back(name, value.get<double>());
    }
  }
  return parameters;
}

// Without the values, which come last.
Json to_json(const Series& series) {
  for (const double value : series.values) {
    TORCH_CHECK_VALUE(std::isfinite(value), "a measured value is ", value, ", in the series ",
                      to_json(series.labels).dump());
  }
  return {{"labels", to_json(series.labels)}, {"unit", series.unit}};
}

Json with_summary(const Series& series) {
  Json object = to_json(series);
  const Summary summary = summarize(series.values);
  object["summary"] = {{"mean", summary.mean},
                       {"p50", summary.p50},
                       {"p90", summary.p90},
                       {"p95", summary.p95},
                       {"p99", summary.p99}};
  object["values"] = series.values;
  return object;
}

Json to_json(const Row& row) {
  Json all = Json::array();
  for (const Series& series : row.series) {
    all.push_back(to_json(series));
    all.back()["values"] = series.values;
  }
  return {{"labels", to_json(row.labels)}, {"series", all}};
}

Row to_row(const Json& object) {
  Row row = {.labels = to_parameters(object.at("labels")), .series = {}};
  for (const Json& series : object.at("series")) {
    row.series.push_back({.labels = to_parameters(series.at("labels")),
                          .unit = series.at("unit").get<std::string>(),
                          .values = series.at("values").get<std::vector<double>>()});
  }
  return row;
}

// Who measured what, when and on which machine.
Json provenance_of(const Run& run) {
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

// Result files and partial ones have these in common.
Json header_json(const Result& result) {
  return {{"program", result.run.program},
          {"provenance", provenance_of(result.run)},
          {"parameters", to_json(result.parameters)}};
}

void check_equal(const fs::path& file, const std::string& what, const Json& then, const Json& now) {
  TORCH_CHECK_VALUE(then == now, file.string(), " was measured with ", what, " ", then.dump(),
                    ", and this run has ", now.dump(), kRemedy);
}

// Parameters are compared one by one, so that the message can name the one that differs.
void check_fits(const fs::path& file, const Json& then, const Json& now) {
  check_equal(file, "program", then.at("program"), now.at("program"));
  for (const char* field : kAgreeing) {
    check_equal(file, field, then.at("provenance").at(field), now.at("provenance").at(field));
  }
  const Json& parameters = now.at("parameters");
  for (const auto& [name, value] : parameters.items()) {
    check_equal(file, name, then.at("parameters").value(name, Json()), value);
  }
  check_equal(file, "the number of parameters", then.at("parameters").size(), parameters.size());
}

}  // namespace

Parameters joined(Parameters first, const Parameters& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

Series exact_time(Parameters labels, double seconds) {
  return {.labels = std::move(labels), .unit = "s", .values = {seconds}};
}

fs::path default_result_path(const Run& run) {
  return fs::path("figures") / "data" /
         (run.program + "." + run.implementation + "." + run.preset + ".json");
}

void write_result(const Result& result, const fs::path& file) {
  Json document = {{"schema_version", kSchemaVersion}};
  document.update(header_json(result));
  document["series"] = Json::array();
  for (const Series& one : result.series) {
    document["series"].push_back(with_summary(one));
  }
  write_whole_file(file, document.dump(1) + "\n", "--output");
}

fs::path partial_path(const fs::path& file) { return file.string() + ".partial"; }

void add_row(std::vector<Row>& rows, Row row) {
  const auto known = std::ranges::find(rows, row.labels, &Row::labels);
  if (known == rows.end()) {
    rows.push_back(std::move(row));
    return;
  }
  for (std::size_t i = 0; i < row.series.size(); ++i) {
    std::ranges::copy(row.series[i].values, std::back_inserter(known->series.at(i).values));
  }
}

void append_row(const Result& header, const Row& row, const fs::path& file, bool anew) {
  const std::string line = to_json(row).dump() + "\n";
  if (anew) {
    write_whole_file(file, header_json(header).dump() + "\n" + line, "--output");
  } else {
    append_to_file(file, line, "--output");
  }
}

std::vector<Row> read_rows(const Result& header, const fs::path& file) {
  std::ifstream stream(file);
  if (!stream) {
    TORCH_CHECK_VALUE(!fs::exists(file), file.string(), " cannot be read", kRemedy);
    return {};
  }
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  const std::size_t end = text.rfind('\n') + 1;
  std::istringstream lines(text.substr(0, end));
  try {
    std::string line;
    std::getline(lines, line);
    check_fits(file, Json::parse(line), header_json(header));
    std::vector<Row> rows;
    while (std::getline(lines, line)) {
      add_row(rows, to_row(Json::parse(line)));
    }
    fs::resize_file(file, end);
    return rows;
  } catch (const Json::exception& error) {
    TORCH_CHECK_VALUE(false, file.string(), " is corrupt (", error.what(), ")", kRemedy);
  }
}

std::string gpu_names() {
  std::string names;
  std::error_code ignored;  // no driver, no folder: no GPU
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    names += (names.empty() ? "" : ", ") + value_in_file(gpu.path() / "information", "Model");
  }
  return names.empty() ? "none" : names;
}

}  // namespace ddp
