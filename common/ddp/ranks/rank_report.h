#pragma once

#include <string>
#include <vector>

namespace ddp {

/// How a rank ended.
enum class RankOutcome {
  kFinished,   // its body returned
  kThrew,      // its body threw
  kSignalled,  // a signal killed it
  kExited,     // something called exit() before the body had returned
  kTimedOut,   // it was stopped at the deadline
  kStopped,    // it was stopped, or gave up, because another rank had failed
};

struct RankReport {
  int rank = 0;
  RankOutcome outcome = RankOutcome::kFinished;
  /// The cause of the outcome: the exception's text, the signal's name, the exit code.
  std::string reason;
  /// True if the exception was a c10::NotImplementedError, as a stub throws.
  bool not_implemented = false;
  /// What it did last, where a companion knows: "waits for all-reduce #3 of the gradient of
  /// fc1.weight (400 bytes)".
  std::string activity;
  /// The innermost places in the lab's code where it crashed, threw or hung, see name_places().
  std::vector<std::string> stack;
  /// The beginning and the end of its output, at most 16 KiB.
  std::string log;
  std::vector<std::string> messages;

  /// "rank 0 printed:" and the first and last lines of `log`, indented; empty if it printed nothing.
  std::string printed() const;
};

struct RankReports {
  std::vector<RankReport> ranks;
  /// The rank that failed first; -1 if all finished.
  int culprit = -1;

  bool ok() const { return culprit < 0; }
  /// A report of the failure: the culprit first, then where every other rank was. Empty if ok().
  std::string describe() const;
};

}  // namespace ddp
