#include "ddp/ranks/rank_report.h"

#include <sstream>

// RankReports::describe(): a failed run in words.

namespace ddp {

namespace {

const char* verb(RankOutcome outcome) {
  switch (outcome) {
    case RankOutcome::kFinished:
      return "finished";
    case RankOutcome::kThrew:
      return "threw an exception";
    case RankOutcome::kSignalled:
      return "died";
    case RankOutcome::kExited:
      return "exited";
    case RankOutcome::kTimedOut:
      return "hung";
    case RankOutcome::kStopped:
      return "gave up";
  }
  return "?";
}

void describe_rank(std::ostream& out, const RankReport& report) {
  out << "rank " << report.rank << " " << verb(report.outcome);
  if (!report.reason.empty()) {
    out << ": " << report.reason;
  }
  out << "\n";
  if (!report.activity.empty()) {
    out << "    last seen: " << report.activity << "\n";
  }
  for (const std::string& place : report.stack) {
    out << "    at " << place << "\n";
  }
}

void describe_log(std::ostream& out, const RankReport& report) {
  if (report.log.empty()) {
    return;
  }
  out << "    its output:\n";
  std::istringstream lines(report.log);
  for (std::string line; std::getline(lines, line);) {
    out << "    | " << line << "\n";
  }
}

}  // namespace

std::string RankReports::describe() const {
  std::ostringstream out;
  if (ok()) {
    return "";
  }
  describe_rank(out, ranks[culprit]);
  describe_log(out, ranks[culprit]);
  for (const RankReport& report : ranks) {
    if (report.rank != culprit) {
      describe_rank(out, report);
    }
  }
  return out.str();
}

}  // namespace ddp
