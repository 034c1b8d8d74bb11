#include "harness/unfinished.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <cstdio>
#include <new>

namespace ddp {

UnfinishedCode::UnfinishedCode() {
  void* memory = mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(memory != MAP_FAILED, "no shared memory is left");
  met_ = new (memory) std::atomic<bool>(false);
}

UnfinishedCode::~UnfinishedCode() { munmap(met_, sizeof(std::atomic<bool>)); }

void UnfinishedCode::look_for_it(const std::function<void()>& body, bool tells) {
  try {
    body();
  } catch (const c10::NotImplementedError& error) {
    if (!met_->exchange(true) && tells) {
      std::fprintf(stderr, "%s\n", error.msg().c_str());
    }
  }
}

}  // namespace ddp
