#include "harness/partial_result.h"

#include <c10/util/Exception.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ddp/meters/whole_file.h"
#include "harness/result_json.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kProgram = "program";
constexpr const char* kProvenance = "provenance";
constexpr const char* kParameters = "parameters";
constexpr const char* kLabels = "labels";
constexpr const char* kSeries = "series";

// The fields of the provenance that must match; the date and the command line need not.
constexpr const char* kAgreeing[] = {"implementation", "preset", "device", "backend",
                                     "world_size",     "seed",   "commit", "torch",
                                     "host",           "cpu",    "gpu"};

constexpr const char* kRemedy = "; leave out --resume to start over";

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

Json row_json(const Row& row) {
  Json all = Json::array();
  for (const Series& series : row.series) {
    check_finite(series);
    all.push_back({{kLabels, parameters_json(series.labels)},
                   {"unit", series.unit},
                   {"values", series.values}});
  }
  return {{kLabels, parameters_json(row.labels)}, {kSeries, all}};
}

Row to_row(const Json& object) {
  Row row = {.labels = to_parameters(object.at(kLabels)), .series = {}};
  for (const Json& series : object.at(kSeries)) {
    row.series.push_back({.labels = to_parameters(series.at(kLabels)),
                          .unit = series.at("unit").get<std::string>(),
                          .values = series.at("values").get<std::vector<double>>()});
  }
  return row;
}

void check_equal(const fs::path& file, const std::string& what, const Json& then, const Json& now) {
  TORCH_CHECK_VALUE(then == now, file.string(), " was measured with ", what, " ", then.dump(),
                    ", and this run has ", now.dump(), kRemedy);
}

// Parameters are compared one by one, so that the message can name the one that differs.
void check_fits(const fs::path& file, const Json& document, const PartialResult& expected) {
  check_equal(file, kProgram, document.at(kProgram), expected.run.program);
  const Json provenance = provenance_json(expected.run);
  for (const char* field : kAgreeing) {
    check_equal(file, field, document.at(kProvenance).at(field), provenance.at(field));
  }
  const Json parameters = parameters_json(expected.parameters);
  for (const auto& [name, value] : parameters.items()) {
    check_equal(file, name, document.at(kParameters).value(name, Json()), value);
  }
  check_equal(file, "the number of parameters", document.at(kParameters).size(), parameters.size());
}

}  // namespace

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

void append_row(const PartialResult& header, const Row& row, const fs::path& file, bool anew) {
  const std::string line = row_json(row).dump() + "\n";
  if (anew) {
    const Json first = {{kProgram, header.run.program},
                        {kProvenance, provenance_json(header.run)},
                        {kParameters, parameters_json(header.parameters)}};
    write_whole_file(file, first.dump() + "\n" + line, "--output");
  } else {
    append_to_file(file, line, "--output");
  }
}

std::vector<Row> read_partial_rows(const PartialResult& expected, const fs::path& file) {
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
    check_fits(file, Json::parse(line), expected);
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

}  // namespace ddp
