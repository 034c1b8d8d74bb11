#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

/// The kernel's id of the calling thread.
int this_thread_id();

/// A snapshot of a thread. Two equal snapshots of a sleeping thread mean that it
/// slept all the time between them: it waits for something, and was not merely preempted.
struct ThreadSleep {
  bool asleep = false;
  bool stopped = false;  // by a signal, until another one
  std::string switches;  // how often it gave up its processor: a line of /proc

  bool operator==(const ThreadSleep&) const = default;
};

/// Of a thread of this process. One that has ended is not asleep.
ThreadSleep look_at_thread(int thread);

/// The processor time that a thread of this process has taken; none if it has ended.
std::optional<std::chrono::nanoseconds> time_of_thread(int thread);

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

  /// What the looks since reset() have found of a process.
  struct Watched {
    /// How many have found its main thread in the same sleep, and none of its threads ready to run.
    int still = 0;
    /// How many in a row have found it stopped by a signal such as SIGSTOP.
    int stopped = 0;
    int threads = 0;
    std::string sleep;  // what changes when the main thread wakes
    std::int64_t ticks = -1;
    std::int64_t first_ticks = -1;

    /// The processor time that it has taken.
    std::chrono::milliseconds computing() const;
  };

  const Watched& of(int process) const { return watched_[process]; }

 private:
  int looks_ = 0;
  std::vector<Watched> watched_;
};

}  // namespace ddp
