#include "harness/result_file.h"

#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>

#include "ddp/meters/statistics.h"
#include "ddp/meters/whole_file.h"
#include "harness/result_json.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

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
