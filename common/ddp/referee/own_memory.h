#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace ddp {

/// Allocates memory that forked processes do not have. What the referee keeps of all runs would
/// otherwise make every fork slower, as the kernel copies its page tables, and the pages that are
/// written afterwards. For few and large blocks.
template <class T>
struct OwnMemory {
  using value_type = T;

  OwnMemory() = default;
  template <class U>
  OwnMemory(const OwnMemory<U>& /*other*/) {}

  T* allocate(std::size_t count) {
    void* const block = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
      throw std::bad_alloc();
    }
    madvise(block, count * sizeof(T), MADV_DONTFORK);
    return static_cast<T*>(block);
  }
  void deallocate(T* block, std::size_t count) noexcept { munmap(block, count * sizeof(T)); }

  friend bool operator==(const OwnMemory& /*a*/, const OwnMemory& /*b*/) { return true; }
};

}  // namespace ddp
