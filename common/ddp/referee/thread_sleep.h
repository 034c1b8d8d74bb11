#pragma once

#include <string>

namespace ddp {

/// The kernel's number of the calling thread.
int this_thread_id();

/// What one look at a thread of this process shows. Two equal looks at a sleeping thread mean that
/// it slept all the time between them: it waits for something, and is not merely out of luck with
/// the scheduler.
struct ThreadSleep {
  bool asleep = false;
  std::string switches;  // how often it gave up its processor, as the kernel writes it

  bool operator==(const ThreadSleep&) const = default;
};

/// A thread that has ended is not asleep.
ThreadSleep look_at_thread(int thread);

}  // namespace ddp
