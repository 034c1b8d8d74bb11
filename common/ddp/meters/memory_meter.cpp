#include "ddp/meters/memory_meter.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace ddp {

namespace {

// Wraps the allocator that was in use, and hands out its pointers unchanged: either of the two can
// free what the other one allocated, as libtorch's oneDNN code may do.
class CountingAllocator : public c10::Allocator {
 public:
  struct Counts {
    std::int64_t live = 0;
    std::int64_t peak = 0;
    std::int64_t allocations = 0;
    MemoryMeter::Sizes live_sizes = {}, peak_sizes = {};
  };

  // The only instance: libtorch frees through a plain function, which is given only the pointer.
  // Never destroyed, as libtorch demands: tensors may outlive everything else.
  static CountingAllocator& instance() {
    static CountingAllocator& only = *std::make_unique<CountingAllocator>().release();
    return only;
  }

  void install() {
    TORCH_CHECK(c10::GetCPUAllocator() == inner_,
                "the CPU allocator is another one already: a process can have one MemoryMeter at a "
                "time, and no allocator of its own");
    TORCH_CHECK(inner_->raw_deleter() != nullptr, "this CPU allocator cannot be counted");
    {
      const std::lock_guard lock(mutex_);
      sizes_.clear();
      counts_ = {};
    }
    c10::SetCPUAllocator(this);
    require_in_use();
  }

  void uninstall() { c10::SetCPUAllocator(inner_); }

  Counts counts() const {
    require_in_use();
    const std::lock_guard lock(mutex_);
    return counts_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    counts_.peak = counts_.live;
    counts_.peak_sizes = counts_.live_sizes;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* memory = inner_->raw_allocate(bytes);
    if (memory != nullptr) {
      note_allocated(memory, bytes);
    }
    return {memory, memory, &release, c10::DeviceType::CPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner_->copy_data(to, from, bytes);
  }

 private:
  void require_in_use() const {
    TORCH_CHECK(c10::GetCPUAllocator() == this,
                "the CPU allocator was replaced, so that memory cannot be counted");
  }

  static void release(void* memory) {
    instance().note_freed(memory);
    instance().inner_->raw_deallocate(memory);
  }

  void note_allocated(void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[memory] = static_cast<std::int64_t>(bytes);
    counts_.live += static_cast<std::int64_t>(bytes);
    ++counts_.live_sizes[static_cast<std::int64_t>(bytes)];
    if (counts_.live > counts_.peak) {
      counts_.peak = counts_.live;
      counts_.peak_sizes = counts_.live_sizes;
    }
    ++counts_.allocations;
  }

  void note_freed(void* memory) {
    const std::lock_guard lock(mutex_);
    // Memory from before this meter is not in the map.
    if (const auto found = sizes_.find(memory); found != sizes_.end()) {
      counts_.live -= found->second;
      if (--counts_.live_sizes[found->second] == 0) {
        counts_.live_sizes.erase(found->second);
      }
      sizes_.erase(found);
    }
  }

  c10::Allocator* const inner_ = c10::GetCPUAllocator();
  mutable std::mutex mutex_;
  std::unordered_map<void*, std::int64_t> sizes_;
  Counts counts_;
};

}  // namespace

MemoryMeter::MemoryMeter() : heap_before_(heap_bytes()) { CountingAllocator::instance().install(); }

MemoryMeter::~MemoryMeter() { CountingAllocator::instance().uninstall(); }

std::int64_t MemoryMeter::live_bytes() const { return CountingAllocator::instance().counts().live; }

std::int64_t MemoryMeter::peak_bytes() const { return CountingAllocator::instance().counts().peak; }

void MemoryMeter::reset_peak() { CountingAllocator::instance().reset_peak(); }

MemoryMeter::Sizes MemoryMeter::live_sizes() const {
  return CountingAllocator::instance().counts().live_sizes;
}

MemoryMeter::Sizes MemoryMeter::peak_sizes() const {
  return CountingAllocator::instance().counts().peak_sizes;
}

std::int64_t MemoryMeter::other_bytes() const {
  return std::max<std::int64_t>(heap_bytes() - heap_before_ - live_bytes(), 0);
}

std::int64_t MemoryMeter::allocations() const {
  return CountingAllocator::instance().counts().allocations;
}

std::int64_t heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);  // large blocks are mapped
}

}  // namespace ddp
