#include "ddp/cluster/meta_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <limits>
#include <memory>
#include <mutex>
#include <utility>

namespace ddp::cluster {

namespace {

constexpr std::uint8_t kBeforeAll = std::numeric_limits<std::uint8_t>::max();  // others' priority

// Of this thread.
thread_local MemoryKind kind_now = MemoryKind::kParameters;
thread_local const char* moment_now = "construction";

// Hands out no memory, and a note of its size, which libtorch gives back with the storage.
class CountingMetaAllocator : public c10::Allocator {
 public:
  // The only instance, never destroyed: tensors may outlive everything else.
  static CountingMetaAllocator& instance() {
    static CountingMetaAllocator& only = *std::make_unique<CountingMetaAllocator>().release();
    return only;
  }

  void install(MetaMemory* user) {
    TORCH_CHECK(c10::GetAllocator(c10::kMeta) == inner_,
                "a process can have one MetaMemory at a time");
    live_ = peak_ = {};
    user_ = user;
    ++meter_;
    c10::SetAllocator(c10::kMeta, this, kBeforeAll);
  }

  void uninstall() {
    user_ = nullptr;
    c10::SetAllocator(c10::kMeta, inner_, kBeforeAll);
  }

  MetaMemory* user() const { return user_; }

  MemoryUse live() const {
    const std::lock_guard lock(mutex_);
    return live_;
  }

  MemoryUse peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    begin_peak();
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    auto note = std::make_unique<Note>(Note{static_cast<std::int64_t>(bytes), 0, 0, kind_now});
    const std::lock_guard lock(mutex_);
    note->meter = meter_;
    note->number = ++made_;
    live_.of(note->kind) += note->bytes;
    if (live_.total() > peak_.total()) {
      begin_peak();
    }
    return {nullptr, note.release(), &release, c10::Device(c10::kMeta)};
  }

  void tell(const c10::DataPtr& data, MemoryKind kind) {
    if (data.get_deleter() != &release) {
      return;
    }
    Note& note = *static_cast<Note*>(data.get_context());
    const std::lock_guard lock(mutex_);
    const MemoryKind before = std::exchange(note.kind, kind);
    if (note.meter != meter_) {
      return;
    }
    for (MemoryUse* use : {&live_, note.number <= peak_made_ ? &peak_ : nullptr}) {
      if (use != nullptr) {
        use->of(before) -= note.bytes;
        use->of(kind) += note.bytes;
      }
    }
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}

 private:
  struct Note {
    std::int64_t bytes;
    int meter;            // which was counting
    std::int64_t number;  // in the order in which they were made
    MemoryKind kind;
  };

  void begin_peak() {
    peak_ = live_;
    peak_.moment = moment_now;
    peak_made_ = made_;
  }

  static void release(void* context) {
    const std::unique_ptr<Note> note(static_cast<Note*>(context));
    CountingMetaAllocator& all = instance();
    const std::lock_guard lock(all.mutex_);
    if (note->meter == all.meter_) {
      all.live_.of(note->kind) -= note->bytes;
    }
  }

  c10::Allocator* const inner_ = c10::GetAllocator(c10::kMeta);
  mutable std::mutex mutex_;
  MetaMemory* user_ = nullptr;
  MemoryUse live_, peak_;
  std::int64_t made_ = 0, peak_made_ = 0;  // storages so far, and at the peak
  int meter_ = 0;
};

}  // namespace

MetaMemory::MetaMemory() { CountingMetaAllocator::instance().install(this); }

MetaMemory::~MetaMemory() { CountingMetaAllocator::instance().uninstall(); }

MemoryUse MetaMemory::live() const { return CountingMetaAllocator::instance().live(); }

MemoryUse MetaMemory::peak() const { return CountingMetaAllocator::instance().peak(); }

void MetaMemory::reset_peak() { CountingMetaAllocator::instance().reset_peak(); }

MetaMemory* MetaMemory::current() { return CountingMetaAllocator::instance().user(); }

MemoryScope::MemoryScope(MemoryKind kind, const char* moment)
    : kind_(std::exchange(kind_now, kind)), moment_(std::exchange(moment_now, moment)) {}

MemoryScope::~MemoryScope() {
  kind_now = kind_;
  moment_now = moment_;
}

void tell_kind(const at::Tensor& meta, MemoryKind kind) {
  CountingMetaAllocator::instance().tell(meta.storage().data_ptr(), kind);
}

}  // namespace ddp::cluster
