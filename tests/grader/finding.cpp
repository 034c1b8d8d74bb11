#include "grader/finding.h"

namespace ddp::testing {

std::string how_often(std::int64_t times) {
  constexpr const char* kFew[] = {"never", "once", "twice"};
  return times < 3 ? kFew[times] : std::to_string(times) + " times";
}

std::string duration(std::int64_t ns) {
  if (ns < 1'000) {
    return std::to_string(ns) + " ns";
  }
  const std::string below = std::to_string(1'000 + ns % 1'000).substr(1);
  return std::to_string(ns / 1'000) + "." + below + " us";
}

}  // namespace ddp::testing
