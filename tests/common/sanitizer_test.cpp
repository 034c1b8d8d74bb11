// Mistakes on purpose, which a sanitizer must report: tools/checking/sanitizers.py runs each under the one that it is for.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>

#include "common/checks.h"
#include "ddp/backends/worker_queue.h"

namespace ddp {
namespace {

// The second thread goes on when the first has written, but what tells it so orders nothing.
CHILD_TEST(Sanitizer, DISABLED_FindsARaceInARank) {
  int shared = 0;
  std::atomic<bool> written = false;
  WorkerQueue queue;
  queue.submit([&] {
    shared = 1;
    written.store(true, std::memory_order_relaxed);
  });
  while (!written.load(std::memory_order_relaxed)) {
  }
  shared = 2;
}

CHILD_TEST(Sanitizer, DISABLED_FindsAUseAfterFreeInARank) {
  auto value = std::make_unique<int>(1);
  volatile int* const place = value.get();
  value.reset();
  *place = 2;
}

CHILD_TEST(Sanitizer, DISABLED_FindsAnOverflowInARank) {
  volatile int largest = std::numeric_limits<int>::max();
  largest = largest + 1;
}

}  // namespace
}  // namespace ddp
