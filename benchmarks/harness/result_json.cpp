#include "harness/result_json.h"

#include <c10/util/Exception.h>
#include <torch/version.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "harness/machine.h"

namespace ddp {
namespace {

using Json = nlohmann::ordered_json;

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
          {"cpu", cpu_name()},
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

}  // namespace ddp
