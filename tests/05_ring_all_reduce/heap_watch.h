#pragma once

#include <cstdint>

#include "ddp/meters/memory_meter.h"
#include "ddp/referee/client.h"

namespace ddp::testing {

/// While it lives, each send and recv is a moment to look at buffers in flight; from begin() to end()
/// each operator of libtorch is one to look at the heap, which takes some microseconds. One at a time
/// in a process.
class HeapWatch {
 public:
  explicit HeapWatch(Client& client);
  HeapWatch(const HeapWatch&) = delete;
  HeapWatch& operator=(const HeapWatch&) = delete;
  ~HeapWatch();

  void begin();
  /// The most bytes that any moment since begin() has seen, or that tensors took at any time.
  std::int64_t end();

 private:
  std::uint64_t handle_;
  MemoryMeter tensors_;  // sees every allocation of libtorch's
  std::int64_t heap_ = 0, tensors_before_ = 0;
};

}  // namespace ddp::testing
