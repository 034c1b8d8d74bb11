#pragma once

#include <chrono>
#include <vector>

namespace ddp {

/// The value below which `percent` of the values lie, with linear interpolation between neighbours
/// (numpy's default). Throws c10::ValueError if there are no values, or `percent` is outside
/// [0, 100].
double percentile(std::vector<double> values, double percent);

/// The statistics that published tables give.
struct Summary {
  double mean, p50, p90, p95, p99;
};
Summary summarize(const std::vector<double>& values);

/// Real time since construction, or since the last lap.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  /// Returns the seconds so far and starts again from zero.
  double lap();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace ddp
