#include "ddp/meters/statistics.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace ddp {

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

}  // namespace ddp
