#pragma once

#include <string>

#include "ddp/meters/statistics.h"

namespace ddp {

/// Shows on stderr how far a long job is and how many seconds are left: on a terminal in one line
/// that is rewritten, elsewhere in a new line every ten seconds.
class Progress {
 public:
  /// `what` names the job; it has `total` equal parts.
  Progress(std::string what, int total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// One more part is done.
  void advance();

  /// `parts` parts were done by an earlier run: they say nothing about the time left.
  void skip(int parts) { skipped_ += parts; }

 private:
  void clear_line() const;

  const std::string what_;
  const int total_;
  const bool terminal_;
  int done_ = 0;           // by this run
  int skipped_ = 0;        // by an earlier one
  double last_shown_ = 0;  // seconds since the start
  Stopwatch watch_;
};

}  // namespace ddp
