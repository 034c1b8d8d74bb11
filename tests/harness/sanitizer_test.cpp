// Mistakes on purpose, which a sanitizer must report: tools/checking/sanitizers.py runs each under the one that it is for.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>

#include "ddp/backends/worker_queue.h"
#include "support/ranks.h"

namespace ddp {
namespace {

// The second thread goes on when the first has written, but what tells it so orders nothing.
TEST(Sanitizer, DISABLED_FindsARaceInARank) {
  testing::in_child([] {
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
  });
}

TEST(Sanitizer, DISABLED_FindsAUseAfterFreeInARank) {
  testing::in_child([] {
    auto value = std::make_unique<int>(1);
    volatile int* const place = value.get();
    value.reset();
    *place = 2;
  });
}

TEST(Sanitizer, DISABLED_FindsAnOverflowInARank) {
  testing::in_child([] {
    volatile int largest = std::numeric_limits<int>::max();
    largest = largest + 1;
  });
}

}  // namespace
}  // namespace ddp
