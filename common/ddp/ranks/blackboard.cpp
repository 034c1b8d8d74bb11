#include "ddp/ranks/blackboard.h"

#include <c10/util/Exception.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace ddp {

namespace {

// A shared futex: those of std::atomic::wait are private, and do not reach other processes.
long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

constexpr std::size_t kActivityBytes = 240;

}  // namespace

struct alignas(64) Blackboard::RankSlot {
  std::atomic<RankPhase> phase;
  std::atomic<int> channels_opened;
  // Double-buffered: `current` is the index of the complete copy, so a reader never sees half a
  // line.
  std::atomic<int> current;
  char activity[2][kActivityBytes];
};

struct alignas(64) Blackboard::Channel {
  std::atomic<std::int64_t> count;
  OperationRecord records[kMaxOperations];
};

struct alignas(64) Blackboard::Memory {
  std::atomic<std::uint32_t> generation;
};

// Layout: Memory, then one RankSlot for each rank, then kMaxChannels Channels for each rank. Zero
// bytes are a valid initial state of each.
Blackboard::Blackboard(int world_size)
    : world_size_(world_size),
      bytes_(sizeof(Memory) + world_size * (sizeof(RankSlot) + kMaxChannels * sizeof(Channel))) {
  void* address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(address != MAP_FAILED, "no ", bytes_ >> 20, " MiB of address space for ", world_size,
              " ranks: ", std::strerror(errno));
  memory_ = static_cast<Memory*>(address);
}

Blackboard::~Blackboard() { munmap(memory_, bytes_); }

Blackboard::RankSlot& Blackboard::slot(int rank) const {
  return reinterpret_cast<RankSlot*>(memory_ + 1)[rank];
}

Blackboard::Channel& Blackboard::channel_of(int channel, int rank) const {
  auto* channels = reinterpret_cast<Channel*>(&slot(world_size_));
  return channels[rank * kMaxChannels + channel];
}

void Blackboard::notify() {
  memory_->generation.fetch_add(1);
  futex(memory_->generation, FUTEX_WAKE, INT_MAX, nullptr);
}

void Blackboard::wait_until(const std::function<bool()>& condition) {
  while (true) {
    const std::uint32_t seen = memory_->generation.load();
    if (condition()) {
      return;
    }
    futex(memory_->generation, FUTEX_WAIT, seen, nullptr);
  }
}

void Blackboard::set_phase(int rank, RankPhase phase) {
  slot(rank).phase.store(phase);
  notify();
}

RankPhase Blackboard::phase(int rank) const { return slot(rank).phase.load(); }

void Blackboard::set_activity(int rank, std::string_view activity) {
  RankSlot& mine = slot(rank);
  const int next = 1 - mine.current.load();
  const std::size_t length = std::min(activity.size(), kActivityBytes - 1);
  std::memcpy(mine.activity[next], activity.data(), length);
  mine.activity[next][length] = '\0';
  mine.current.store(next);
}

std::string Blackboard::activity(int rank) const {
  const RankSlot& theirs = slot(rank);
  return theirs.activity[theirs.current.load()];
}

int Blackboard::open_channel(int rank) {
  const int channel = slot(rank).channels_opened.fetch_add(1);
  TORCH_CHECK(channel < kMaxChannels, "a run of ranks has room for ", kMaxChannels,
              " graded backends; make fewer process groups, or use several runs");
  return channel;
}

std::int64_t Blackboard::publish(int channel, int rank, const OperationRecord& record) {
  Channel& mine = channel_of(channel, rank);
  const std::int64_t index = mine.count.load();
  TORCH_CHECK(index < kMaxOperations, "rank ", rank, " launched more than ", kMaxOperations,
              " operations in one run; split the test");
  mine.records[index] = record;
  mine.count.store(index + 1);
  notify();
  return index;
}

const OperationRecord* Blackboard::find(int channel, int rank, std::int64_t index) const {
  const Channel& theirs = channel_of(channel, rank);
  return index < theirs.count.load() ? &theirs.records[index] : nullptr;
}

const OperationRecord& Blackboard::wait_for(int channel, int rank, std::int64_t index) {
  const OperationRecord* record = nullptr;
  RankPhase last_phase{};
  wait_until([&] {
    // Reads the phase first: a rank that publishes and then ends must not look as if it had not
    // published.
    last_phase = phase(rank);
    record = find(channel, rank, index);
    return record != nullptr || last_phase >= RankPhase::kFinished;
  });
  if (record == nullptr) {
    const char* how = last_phase == RankPhase::kFinished ? " has already returned"
                      : last_phase == RankPhase::kFailed ? " has failed"
                                                         : " is dead";
    throw PeerGone("rank " + std::to_string(rank) + how);
  }
  return *record;
}

}  // namespace ddp
