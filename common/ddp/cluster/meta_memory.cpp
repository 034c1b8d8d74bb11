#include "ddp/cluster/meta_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>

namespace ddp::cluster {

namespace {

constexpr std::uint8_t kBeforeAll = std::numeric_limits<std::uint8_t>::max();  // others' priority

// Hands out no memory, and a note of its size, which libtorch gives back with the storage.
class CountingMetaAllocator : public c10::Allocator {
 public:
  // The only instance, never destroyed: tensors may outlive everything else.
  static CountingMetaAllocator& instance() {
    static CountingMetaAllocator& only = *std::make_unique<CountingMetaAllocator>().release();
    return only;
  }

  void install() {
    TORCH_CHECK(c10::GetAllocator(c10::kMeta) == inner_,
                "a process can have one MetaMemory at a time");
    live_ = peak_ = 0;
    ++meter_;
    c10::SetAllocator(c10::kMeta, this, kBeforeAll);
  }

  void uninstall() { c10::SetAllocator(c10::kMeta, inner_, kBeforeAll); }

  std::int64_t live() const {
    const std::lock_guard lock(mutex_);
    return live_;
  }

  std::int64_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = live_;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    auto note = std::make_unique<Note>(Note{static_cast<std::int64_t>(bytes), 0});
    const std::lock_guard lock(mutex_);
    note->meter = meter_;
    live_ += note->bytes;
    peak_ = std::max(peak_, live_);
    return {nullptr, note.release(), &release, c10::Device(c10::kMeta)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}

 private:
  struct Note {
    std::int64_t bytes;
    int meter;  // which was counting
  };

  static void release(void* context) {
    const std::unique_ptr<Note> note(static_cast<Note*>(context));
    CountingMetaAllocator& all = instance();
    const std::lock_guard lock(all.mutex_);
    if (note->meter == all.meter_) {
      all.live_ -= note->bytes;
    }
  }

  c10::Allocator* const inner_ = c10::GetAllocator(c10::kMeta);
  mutable std::mutex mutex_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
  int meter_ = 0;
};

}  // namespace

MetaMemory::MetaMemory() { CountingMetaAllocator::instance().install(); }

MetaMemory::~MetaMemory() { CountingMetaAllocator::instance().uninstall(); }

std::int64_t MetaMemory::live_bytes() const { return CountingMetaAllocator::instance().live(); }

std::int64_t MetaMemory::peak_bytes() const { return CountingMetaAllocator::instance().peak(); }

void MetaMemory::reset_peak() { CountingMetaAllocator::instance().reset_peak(); }

}  // namespace ddp::cluster
