#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace ddp {

/// Tells a sleeper, in whichever process, that there is something new. It lies in shared memory,
/// which is zero at first.
class Bell {
 public:
  std::uint32_t rings() const { return rings_.load(); }

  void ring() {
    rings_.fetch_add(1);
    if (sleepers_.load() > 0) {
      // A shared futex: those of std::atomic::wait do not reach other processes.
      syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }

  /// Returns when the bell has been rung since rings() was `seen`, or after `limit`.
  void sleep(std::uint32_t seen, std::chrono::milliseconds limit) {
    const timespec time{limit.count() / 1'000, limit.count() % 1'000 * 1'000'000};
    sleepers_.fetch_add(1);
    syscall(SYS_futex, &rings_, FUTEX_WAIT, seen, &time, nullptr, 0);
    sleepers_.fetch_sub(1);
  }

 private:
  std::atomic<std::uint32_t> rings_;
  std::atomic<std::uint32_t> sleepers_;  // without any, ringing costs no system call
};

}  // namespace ddp
