// Part of the lab's library if it is built with SANITIZE=thread.
//
// ThreadSanitizer has a thread of its own, which would count as one of the lab's: ranks are forked by processes without
// threads, and the referee asks whether all threads of a rank sleep. It begins with a process's first thread, and again
// in each process that is forked.

#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

namespace {

void end_the_sanitizers_thread() { __sanitizer_sandbox_on_notify(nullptr); }

[[gnu::constructor]] void run_without_the_sanitizers_thread() {
  std::thread([] {}).join();
  end_the_sanitizers_thread();
}

}  // namespace

// The linker makes each fork() of the lab a call of this one (--wrap).
extern "C" pid_t __real_fork();
extern "C" pid_t __wrap_fork() {
  const pid_t child = __real_fork();
  // None begins if the parent had threads. Each thread is a link to the folder, beside its first two.
  if (child == 0 && std::filesystem::hard_link_count("/proc/self/task") > 3) {
    end_the_sanitizers_thread();
  }
  return child;
}
