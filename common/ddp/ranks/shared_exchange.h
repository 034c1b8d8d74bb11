#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ddp/ranks/blackboard.h"

namespace ddp {

/// Moves bytes between forked ranks through shared memory. Two threads of a rank may use it at the
/// same time for different things (a post, and messages with different peers or tags), but not for
/// the same.
class SharedExchange {
 public:
  /// The most that one rank can post; only the pages that are written take memory.
  static constexpr std::size_t kSlabBytes = std::size_t{64} << 20;

  /// Maps the memory; must be called before the fork. The ranks wait for each other on `board`.
  explicit SharedExchange(Blackboard& board);
  SharedExchange(const SharedExchange&) = delete;
  SharedExchange& operator=(const SharedExchange&) = delete;
  ~SharedExchange();

  /// Where `rank` writes what it posts next.
  char* slab(int rank);

  /// Posts the contents of this rank's slab, waits until every rank has posted, and returns the
  /// posted slabs, by rank. They stay unchanged until this rank posts again. Throws PeerGone if a
  /// rank fails before it posts.
  std::vector<const char*> post(int rank);

  /// Move bytes from one rank to another; each returns when its part is done. Messages with the
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
