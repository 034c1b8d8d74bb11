#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace ddp {

/// figures/reference/calibration.json of the checkout that the running program was built in.
std::filesystem::path default_calibration();

/// The constants of a published experiment's hardware, fitted to a few of its cells: one experiment
/// of figures/reference/calibration.json, which `tools/report/calibrate.py` makes.
class Calibration {
 public:
  /// Throws c10::ValueError, which names the file and what to do, if it cannot be read, or has no
  /// such experiment.
  Calibration(const std::filesystem::path& file, const std::string& experiment);

  /// Throws c10::ValueError, listing the constants that there are, if there is none of that name.
  double constant(const std::string& name) const;

 private:
  std::string origin_;  // for messages
  std::map<std::string, double> constants_;
};

}  // namespace ddp
