#include "harness/calibration.h"

#include <c10/util/Exception.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace ddp {
namespace {

constexpr const char* kAdvice =
    "; restore it: git checkout -- figures/reference/calibration.json, or make update";

std::map<std::string, nlohmann::json> read(const std::filesystem::path& file) {
  std::ifstream stream(file);
  TORCH_CHECK_VALUE(stream, file.string(), ": cannot be read", kAdvice);
  try {
    return nlohmann::json::parse(stream)
        .at("experiments")
        .get<std::map<std::string, nlohmann::json>>();
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK_VALUE(false, file.string(), ": is no calibration (", error.what(), ")", kAdvice);
  }
}

template <typename Value>
std::string listed(const std::map<std::string, Value>& map) {
  std::string names;
  for (const auto& [name, value] : map) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "none" : names;
}

}  // namespace

std::filesystem::path default_calibration() {
  const std::filesystem::path bin = std::filesystem::canonical("/proc/self/exe").parent_path();
  return bin.parent_path().parent_path() / "figures/reference/calibration.json";
}

Calibration::Calibration(const std::filesystem::path& file, const std::string& experiment)
    : origin_(file.string() + ", " + experiment) {
  const auto experiments = read(file);
  TORCH_CHECK_VALUE(experiments.contains(experiment), file.string(), ": has nothing about ",
                    experiment, ", only about: ", listed(experiments), kAdvice);
  try {
    constants_ = experiments.at(experiment).at("constants").get<std::map<std::string, double>>();
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK_VALUE(false, origin_, ": its constants cannot be read (", error.what(), ")",
                      kAdvice);
  }
}

double Calibration::constant(const std::string& name) const {
  const auto found = constants_.find(name);
  TORCH_CHECK_VALUE(found != constants_.end(), origin_, ": lacks the constant \"", name,
                    "\"; there are: ", listed(constants_), kAdvice);
  return found->second;
}

}  // namespace ddp
