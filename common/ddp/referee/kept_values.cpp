#include "ddp/referee/kept_values.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ddp {

namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::size_t kAlignment = 64;

}  // namespace

// Whole pages, so that nothing else is left out of a fork.
class KeptValues::Block {
 public:
  explicit Block(std::size_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    TORCH_CHECK(memory_ != MAP_FAILED, "no ", bytes,
                " bytes for values that ranks hand in: ", std::strerror(errno));
    madvise(memory_, bytes_, MADV_DONTFORK);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { munmap(memory_, bytes_); }

  /// Null if it has no room for so many.
  void* take(std::size_t bytes) {
    if (bytes > bytes_ - used_) {
      return nullptr;
    }
    void* const place = static_cast<char*>(memory_) + used_;
    used_ += std::min(bytes_ - used_, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    return place;
  }

 private:
  const std::size_t bytes_;
  void* const memory_;
  std::size_t used_ = 0;
};

at::Tensor KeptValues::copy(const at::Tensor& value) {
  const std::size_t bytes = value.nbytes();
  void* place = block_ ? block_->take(bytes) : nullptr;
  if (place == nullptr) {
    block_ = std::make_shared<Block>(std::max(kBlockBytes, bytes));
    place = block_->take(bytes);
  }
  const auto let_go = [block = block_](void*) {};  // with the last tensor that lies in it
  return at::from_blob(place, value.sizes(), let_go, value.options()).copy_(value);
}

}  // namespace ddp
