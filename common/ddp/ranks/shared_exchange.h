#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ddp/ranks/blackboard.h"

namespace ddp {

/// Moves bytes between the ranks of a fork through shared memory. Two threads of a rank may use it
/// at once for different things (an exchange, and messages of different peers or tags), not for the
/// same.
class SharedExchange {
 public:
  /// The most that one rank can post; only what is used becomes real memory.
  static constexpr std::size_t kSlabBytes = std::size_t{64} << 20;

  /// Maps the memory; to be called before the fork. `board` is where ranks wait for each other.
  explicit SharedExchange(Blackboard& board);
  SharedExchange(const SharedExchange&) = delete;
  SharedExchange& operator=(const SharedExchange&) = delete;
  ~SharedExchange();

  /// Where `rank` writes what it posts next.
  char* slab(int rank);

  /// Posts what is in this rank's slab, and returns when every rank has posted: the slabs as they
  /// were posted, by rank. They stay as they are until this rank posts again. Throws PeerGone when
  /// a rank ends without.
  std::vector<const char*> post(int rank);

  /// Moves bytes from one rank to another; each returns when its part is done. Messages with the
  /// same ends and the same tag arrive in order.
  void send(int from, int to, int tag, std::span<const char> bytes);
  void receive(int from, int to, int tag, std::span<char> bytes);

 private:
  struct Counter;
  struct Mailbox;
  Counter& counter(int rank) const;
  Mailbox& mailbox(int from, int to) const;
  char* slab(int rank, std::int64_t turn) const;
  void wait_or_give_up(int peer, const std::function<bool()>& condition);

  Blackboard& board_;
  int world_size_;
  std::size_t bytes_;
  char* memory_;  // the mapping, released by munmap
};

}  // namespace ddp
