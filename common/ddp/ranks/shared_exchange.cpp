#include "ddp/ranks/shared_exchange.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

namespace ddp {

namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

enum class MailState : std::uint32_t { kFree, kClaimed, kFull };

}  // namespace

// How often a rank has posted. It alternates between its two slabs: when it posts for the (n+2)-th
// time, all ranks have posted n+1 times, and so have read what was posted in turn n.
struct alignas(64) SharedExchange::Counter {
  std::atomic<std::int64_t> posts;
};

// A message is sent in chunks; it keeps the mailbox until its last chunk has been taken.
struct alignas(64) SharedExchange::Mailbox {
  std::atomic<MailState> state;
  std::atomic<int> tag;
  char chunk[kChunkBytes];
};

SharedExchange::SharedExchange(Blackboard& board)
    : board_(board),
      world_size_(board.world_size()),
      bytes_(world_size_ * (sizeof(Counter) + 2 * kSlabBytes) +
             static_cast<std::size_t>(world_size_) * world_size_ * sizeof(Mailbox)) {
  void* address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(address != MAP_FAILED, "no ", bytes_ >> 20, " MiB of address space for ", world_size_,
              " ranks: ", std::strerror(errno));
  memory_ = static_cast<char*>(address);
}

SharedExchange::~SharedExchange() { munmap(memory_, bytes_); }

SharedExchange::Counter& SharedExchange::counter(int rank) const {
  return reinterpret_cast<Counter*>(memory_)[rank];
}

char* SharedExchange::slab(int rank, std::int64_t turn) const {
  char* slabs = memory_ + world_size_ * sizeof(Counter);
  return slabs + (2 * static_cast<std::size_t>(rank) + turn % 2) * kSlabBytes;
}

SharedExchange::Mailbox& SharedExchange::mailbox(int from, int to) const {
  char* mailboxes = memory_ + world_size_ * (sizeof(Counter) + 2 * kSlabBytes);
  const auto row = static_cast<std::size_t>(from) * world_size_;
  return reinterpret_cast<Mailbox*>(mailboxes)[row + to];
}

char* SharedExchange::slab(int rank) { return slab(rank, counter(rank).posts.load()); }

void SharedExchange::wait_or_give_up(int peer, const std::function<bool()>& condition) {
  bool met = false;
  board_.wait_until([&] {
    const bool gone = board_.phase(peer) > RankPhase::kFinished;
    met = condition();
    return met || gone;
  });
  if (!met) {
    throw PeerGone("rank " + std::to_string(peer) + " has failed");
  }
}

std::vector<const char*> SharedExchange::post(int rank) {
  const std::int64_t turn = counter(rank).posts.load();
  counter(rank).posts.store(turn + 1);
  board_.notify();
  std::vector<const char*> slabs;
  for (int peer = 0; peer < world_size_; ++peer) {
    wait_or_give_up(peer, [&] { return counter(peer).posts.load() > turn; });
    slabs.push_back(slab(peer, turn));
  }
  return slabs;
}

void SharedExchange::send(int from, int to, int tag, std::span<const char> bytes) {
  Mailbox& box = mailbox(from, to);
  wait_or_give_up(to, [&] {
    auto expected = MailState::kFree;
    return box.state.compare_exchange_strong(expected, MailState::kClaimed);
  });
  box.tag.store(tag);
  const auto taken = [&] { return box.state.load() == MailState::kClaimed; };
  do {
    const std::size_t count = std::min(bytes.size(), kChunkBytes);
    wait_or_give_up(to, taken);
    std::memcpy(box.chunk, bytes.data(), count);
    bytes = bytes.subspan(count);
    box.state.store(MailState::kFull);
    board_.notify();
  } while (!bytes.empty());
  wait_or_give_up(to, taken);
  box.state.store(MailState::kFree);
  board_.notify();
}

void SharedExchange::receive(int from, int to, int tag, std::span<char> bytes) {
  Mailbox& box = mailbox(from, to);
  do {
    wait_or_give_up(from,
                    [&] { return box.state.load() == MailState::kFull && box.tag.load() == tag; });
    const std::size_t count = std::min(bytes.size(), kChunkBytes);
    std::memcpy(bytes.data(), box.chunk, count);
    bytes = bytes.subspan(count);
    box.state.store(MailState::kClaimed);
    board_.notify();
  } while (!bytes.empty());
}

}  // namespace ddp
