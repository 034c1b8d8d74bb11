#pragma once

#include <string>
#include <vector>

namespace ddp {

/// How a rank ended.
enum class RankOutcome {
  kFinished,   // its body returned
  kThrew,      // its body threw
  kSignalled,  // it died by a signal
  kExited,     // something called exit() before the body had returned
  kTimedOut,   // it was stopped at the deadline
  kStopped,    // it was stopped, or gave up, because another rank had failed
};

struct RankReport {
  int rank = 0;
  RankOutcome outcome = RankOutcome::kFinished;
  /// Why, in one line: the exception's text, the signal's name, the exit code.
  std::string reason;
  /// True if the exception was a c10::NotImplementedError: a stub.
  bool not_implemented = false;
  /// The last thing it said it was doing, such as "waits for all-reduce #3 of fc1.weight.grad (400
  /// bytes)".
  std::string activity;
  /// The innermost places in the lab's code where it crashed or hung: "naive_ddp.cpp:42 in
  /// make_naive_ddp".
  std::vector<std::string> stack;
  /// What it printed: the beginning and the end, at most 16 KiB.
  std::string log;
  std::vector<std::string> messages;
};

struct RankReports {
  std::vector<RankReport> ranks;
  /// The rank that failed first; -1 if all finished.
  int culprit = -1;

  bool ok() const { return culprit < 0; }
  /// Why it failed, for a person: the culprit first, then where every other rank was. Empty when
  /// ok.
  std::string describe() const;
};

}  // namespace ddp
