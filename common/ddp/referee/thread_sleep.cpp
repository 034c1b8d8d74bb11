#include "ddp/referee/thread_sleep.h"

#include <sys/syscall.h>
#include <unistd.h>

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

}  // namespace ddp
