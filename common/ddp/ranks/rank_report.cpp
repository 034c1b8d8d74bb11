#include <algorithm>
#include <sstream>

#include "ddp/ranks/fork_ranks.h"

// RankReports::describe(): a failed run in words.

namespace ddp {

namespace {

constexpr int kReasonLines = 10;
constexpr std::size_t kOutputLines = 10;  // of its beginning, and of its end

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

// The cause of a rank's end. An exception of libtorch may go on with a line for every backend that
// there is.
std::string beginning_of(const std::string& reason) {
  std::istringstream lines(reason);
  std::string text;
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    if (count < kReasonLines) {
      text += (count > 0 ? "\n    " : "") + line;
    }
  }
  const int more = count - kReasonLines;
  return more > 0 ? text + "\n    [... " + std::to_string(more) + " more lines ...]" : text;
}

void describe_rank(std::ostream& out, const RankReport& report) {
  out << "rank " << report.rank << " " << verb(report.outcome);
  if (!report.reason.empty()) {
    out << ": " << beginning_of(report.reason);
  }
  out << "\n";
  for (const std::string& place : report.stack) {
    out << "    at " << place << "\n";
  }
  if (!report.activity.empty()) {
    out << "    last seen: " << report.activity << "\n";
  }
}

bool ended_alike(const RankReport& one, const RankReport& other) {
  return one.outcome == other.outcome && one.reason == other.reason && one.stack == other.stack;
}

}  // namespace

std::string RankReport::printed() const {
  std::vector<std::string> lines;
  std::istringstream text(log);
  for (std::string line; std::getline(text, line);) {
    lines.push_back(line);
  }
  if (lines.empty()) {
    return "";
  }
  std::ostringstream out;
  out << "rank " << rank << " printed:\n";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i < kOutputLines || i + kOutputLines >= lines.size()) {
      out << "    | " << lines[i] << "\n";
    } else if (i == kOutputLines) {
      out << "    [... " << lines.size() - 2 * kOutputLines << " more lines with VERBOSE=1 ...]\n";
    }
  }
  return out.str();
}

std::string RankReports::describe() const {
  if (ok()) {
    return "";
  }
  std::ostringstream out;
  std::string alike;
  // Which of those that ended alike was seen to end first is chance.
  const RankReport& first = *std::ranges::find_if(
      ranks, [&](const RankReport& report) { return ended_alike(report, ranks[culprit]); });
  describe_rank(out, first);
  out << first.printed();
  for (const RankReport& report : ranks) {
    if (report.rank == first.rank) {
      continue;
    }
    if (ended_alike(report, first)) {
      alike += (alike.empty() ? "" : ", ") + std::to_string(report.rank);
    } else {
      describe_rank(out, report);
    }
  }
  if (!alike.empty()) {
    out << "the same in rank " << alike << "\n";
  }
  return out.str();
}

}  // namespace ddp
