#include "ddp/ranks/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace ddp {

void Bell::ring() {
  rings_.fetch_add(1);
  if (sleepers_.load() == 0) {
    return;
  }
  // A shared futex: those of std::atomic::wait do not reach other processes.
  syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::sleep(std::uint32_t seen, std::chrono::milliseconds limit) {
  const timespec time{limit.count() / 1'000, limit.count() % 1'000 * 1'000'000};
  sleepers_.fetch_add(1);
  syscall(SYS_futex, &rings_, FUTEX_WAIT, seen, &time, nullptr, 0);
  sleepers_.fetch_sub(1);
}

}  // namespace ddp
