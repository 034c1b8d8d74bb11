#pragma once

#include <chrono>
#include <vector>

namespace ddp {

/// The value below which `percent` of the values lie, with linear interpolation between neighbours,
/// as numpy's default does. Throws c10::ValueError for no values, or a percent outside [0, 100].
double percentile(std::vector<double> values, double percent);

/// The numbers that published tables give.
struct Summary {
  double mean, p50, p90, p95, p99;
};
Summary summarize(const std::vector<double>& values);

/// Real time since construction, or since the last lap.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  /// The seconds so far; starts again from zero.
  double lap();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace ddp
