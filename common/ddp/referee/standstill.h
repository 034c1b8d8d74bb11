#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

/// Looks at the threads of processes from outside, to tell one that waits from one that computes, or
/// that would compute if a loaded machine let it.
class Standstill {
 public:
  /// Looks at every process; -1 is skipped. Call it about every millisecond while nothing is heard.
  void look(const std::vector<pid_t>& processes);

  /// Something was heard: all begins anew.
  void reset();

  /// How many looks there were since reset().
  int looks() const { return looks_; }

  /// How many looks have found the process's main thread in the same sleep, and none of its threads
  /// ready to run.
  int still(int process) const;

  /// How many looks in a row have found it stopped by a signal such as SIGSTOP.
  int stopped(int process) const;

  /// Whether the process has the main thread alone.
  bool single(int process) const;

  /// The processor time that it has taken since reset().
  std::chrono::milliseconds computing(int process) const;

 private:
  struct Watched {
    int still = 0;
    int stopped = 0;
    int threads = 0;
    std::string sleep;  // what changes when the main thread wakes
    std::int64_t ticks = -1;
    std::int64_t first_ticks = -1;
  };
  int looks_ = 0;
  std::vector<Watched> watched_;
};

}  // namespace ddp
