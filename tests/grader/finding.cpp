#include "grader/finding.h"

#include <algorithm>

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

Finding Finding::in_order(const std::vector<std::string>& due,
                          const std::vector<std::string>& came) && {
  values = Values{.name = "order", .elements = "", .rows = {}};
  for (std::size_t i = 0; i < std::max(due.size(), came.size()); ++i) {
    values->rows.push_back({std::to_string(i + 1), i < due.size() ? due[i] : "nothing",
                            i < came.size() ? came[i] : "nothing"});
  }
  return std::move(*this);
}

}  // namespace ddp::testing
