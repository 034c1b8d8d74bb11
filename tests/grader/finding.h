#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ddp/referee/evidence.h"
#include "ddp/virtual_time/virtual_time.h"

// What is wrong in the evidence of a scenario.

namespace ddp::testing {

/// The edge cases of a scenario. To overlook one is one mistake, and costs the points of one test
/// (tools/grading/scoring/deductions.py). Most scenarios have none or one.
using EdgeCases = std::set<std::string>;

/// Facts of what a rank holds: "bytes parameters"; and of how much that may be, from then on.
constexpr const char* kBytes = "bytes ";
constexpr const char* kBytesAllowed = "bytes allowed";

/// How often something happens: "never", "once", "twice", "3 times".
std::string how_often(std::int64_t times);

/// Simulated nanoseconds, as people read them: "11.706 us", "502 ns".
std::string duration(std::int64_t ns);

/// What is wrong in the evidence of a scenario, for the student; empty if nothing is.
struct Finding {
  Finding() = default;
  Finding(const char* what) : text(what) {}
  Finding(std::string what) : text(std::move(what)) {}
  bool empty() const { return text.empty(); }

  std::string text;
  /// Its edge cases, beside the scenario's.
  EdgeCases edge_cases = {};
  /// Edge cases that ranks have told, but of another place in the scenario.
  EdgeCases elsewhere = {};
  /// Whether the claim holds in the scenario without that.
  bool holds_otherwise = false;

  // What a picture shows of it (grader/picture.h).

  /// An event of the evidence that breaks the claim.
  struct Spot {
    const Seen* event = nullptr;
    std::string kind = {};  // "launched too early"; empty: what the event's kind says
  };
  /// For a claim on the time of a step, also where it holds.
  struct Times {
    int step = 0;
    std::int64_t expected_ns = 0;
    NetworkModel network;
    ComputeCost cost;
    std::vector<Span> chain;  // what makes up that time
  };
  /// Where two tensors differ, or two orders.
  struct Values {
    struct Row {
      std::string index, expected, actual;
    };
    std::string name;      // of the tensor; or "order"
    std::string elements;  // "3 of 12 elements differ"
    std::vector<Row> rows;
  };
  /// The same finding about this event, too.
  Finding at(const Seen* event, const std::string& kind = "") && {
    if (event != nullptr) {
      spots.push_back({event, kind});
    }
    return std::move(*this);
  }

  /// The same, if it is about none yet.
  Finding or_at(const Seen* event) && {
    return spots.empty() ? std::move(*this).at(event) : std::move(*this);
  }

  /// The same, with two orders side by side: what was due, and what came.
  Finding in_order(const std::vector<std::string>& due, const std::vector<std::string>& came) &&;

  std::vector<Spot> spots = {};
  std::optional<Times> times = {};
  std::optional<Values> values = {};
};

/// What `check` finds in the first element of a range in which it finds something.
template <typename Range, typename Check>
Finding first_in(const Range& range, const Check& check) {
  for (const auto& each : range) {
    if (Finding finding = check(each); !finding.empty()) {
      return finding;
    }
  }
  return "";
}

/// "a, b, c": what `describe` says of elements of a range, at `most` of so many, and then `more`.
template <typename Range, typename Describe>
std::string enumerated(const Range& range, const Describe& describe, std::size_t most = 12,
                       const std::string& more = " ...") {
  std::string text;
  std::size_t count = 0;
  for (const auto& each : range) {
    if (count++ == most) {
      return text + more;
    }
    text += (text.empty() ? "" : ", ") + describe(each);
  }
  return text;
}

/// The finding with this text before its own.
inline Finding operator+(const std::string& before, Finding finding) {
  finding.text = before + finding.text;
  return finding;
}

}  // namespace ddp::testing
