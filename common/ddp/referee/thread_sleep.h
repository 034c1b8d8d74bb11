#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

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

/// Of the thread whose folder in /proc is `task`. One that has ended is not asleep.
ThreadSleep look_at_task(const std::filesystem::path& task);

/// Of a thread of this process.
ThreadSleep look_at_thread(int thread);

/// The processor time that a thread of this process has taken; none if it has ended.
std::optional<std::chrono::nanoseconds> time_of_thread(int thread);

}  // namespace ddp
