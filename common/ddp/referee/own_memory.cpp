#include "ddp/referee/own_memory.h"

#include <sys/mman.h>

#include <new>

namespace ddp {

namespace {

class OwnMemory : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t /*alignment: a page's is enough*/) override {
    void* const block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) {
      throw std::bad_alloc();
    }
    madvise(block, bytes, MADV_DONTFORK);
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t /*alignment*/) override {
    munmap(block, bytes);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

}  // namespace

std::pmr::memory_resource* own_memory() {
  static OwnMemory memory;
  return &memory;
}

}  // namespace ddp
