#include "ddp/referee/standstill.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ddp/referee/thread_sleep.h"

namespace ddp {

namespace fs = std::filesystem;

namespace {

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

int Standstill::still(int process) const {
  return process < static_cast<int>(watched_.size()) ? watched_[process].still : 0;
}

int Standstill::stopped(int process) const {
  return process < static_cast<int>(watched_.size()) ? watched_[process].stopped : 0;
}

bool Standstill::single(int process) const {
  return process < static_cast<int>(watched_.size()) && watched_[process].threads == 1;
}

std::chrono::milliseconds Standstill::computing(int process) const {
  if (process >= static_cast<int>(watched_.size())) {
    return {};
  }
  const Watched& watched = watched_[process];
  return std::chrono::milliseconds((watched.ticks - watched.first_ticks) * 1'000 /
                                   sysconf(_SC_CLK_TCK));
}

}  // namespace ddp
