#include "ddp/referee/standstill.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace ddp {

namespace fs = std::filesystem;

int this_thread_id() { return static_cast<int>(syscall(SYS_gettid)); }

namespace {

// Of the thread whose folder in /proc is `task`.
ThreadSleep look_at_task(const fs::path& task) {
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

// User and system time of all its threads, in clock ticks.
std::int64_t ticks_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  // After the name in parentheses: state, 10 numbers, utime, stime.
  std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skipped;
  for (int field = 0; field < 11; ++field) {
    rest >> skipped;
  }
  std::int64_t user = 0;
  std::int64_t system = 0;
  rest >> user >> system;
  return user + system;
}

}  // namespace

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

void Standstill::look(const std::vector<pid_t>& processes) {
  ++looks_;
  watched_.resize(processes.size());
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const pid_t process = processes[i];
    if (process < 0) {
      continue;
    }
    Watched& watched = watched_[i];
    bool asleep = true;
    bool stopped = false;
    std::string sleep;
    watched.threads = 0;
    std::error_code gone;
    const fs::path tasks = "/proc/" + std::to_string(process) + "/task";
    for (const auto& task : fs::directory_iterator(tasks, gone)) {
      const ThreadSleep thread = look_at_task(task.path());
      asleep = asleep && thread.asleep;
      ++watched.threads;
      if (task.path().filename() == std::to_string(process)) {
        sleep = thread.switches;
        stopped = thread.stopped;
      }
    }
    if (sleep != watched.sleep) {
      watched.still = 0;
    } else if (asleep) {
      ++watched.still;  // a thread that is ready to run says nothing about the others
    }
    watched.sleep = sleep;
    watched.stopped = stopped ? watched.stopped + 1 : 0;
    watched.ticks = ticks_of(process);
    if (watched.first_ticks < 0) {
      watched.first_ticks = watched.ticks;
    }
  }
}

void Standstill::reset() {
  looks_ = 0;
  watched_.clear();
}

std::chrono::milliseconds Standstill::Watched::computing() const {
  return std::chrono::milliseconds((ticks - first_ticks) * 1'000 / sysconf(_SC_CLK_TCK));
}

}  // namespace ddp
