#pragma once

#include <cstdint>

#include "ddp/referee/client.h"

namespace ddp::testing {

/// Bytes that this process has allocated by malloc, so by new and by tensors, and not freed. 0 under
/// AddressSanitizer, which cannot tell.
std::int64_t heap_bytes();

/// While it lives, each operator of libtorch, send and recv among them, is a moment to look at the
/// heap, and at buffers in flight. One at a time in a process.
class HeapWatch {
 public:
  explicit HeapWatch(Client& client);
  HeapWatch(const HeapWatch&) = delete;
  HeapWatch& operator=(const HeapWatch&) = delete;
  ~HeapWatch();

  /// The most that any moment since the last reset() has seen.
  std::int64_t peak() const;
  void reset();

 private:
  std::uint64_t handle_;
};

}  // namespace ddp::testing
