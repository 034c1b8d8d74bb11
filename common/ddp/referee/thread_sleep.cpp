#include "ddp/referee/thread_sleep.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

namespace ddp {

int this_thread_id() { return static_cast<int>(syscall(SYS_gettid)); }

ThreadSleep look_at_task(const std::filesystem::path& task) {
  std::ifstream file(task / "status");
  ThreadSleep look;
  for (std::string line; std::getline(file, line);) {
    look.asleep = look.asleep || line.starts_with("State:\tS");
    look.stopped = look.stopped || line.starts_with("State:\tT");
    if (line.starts_with("voluntary_ctxt_switches")) {
      look.switches = line;
    }
  }
  return look;
}

ThreadSleep look_at_thread(int thread) {
  return look_at_task("/proc/self/task/" + std::to_string(thread));
}

std::optional<std::chrono::nanoseconds> time_of_thread(int thread) {
  // As the kernel makes it of a thread's id, see clock_gettime(2) and pthread_getcpuclockid(3).
  constexpr clockid_t kOfThread = 6;
  timespec time{};
  if (clock_gettime(static_cast<clockid_t>(~static_cast<unsigned>(thread) << 3U) | kOfThread,
                    &time) != 0) {
    return std::nullopt;
  }
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace ddp
