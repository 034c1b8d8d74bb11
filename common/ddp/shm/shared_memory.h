#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "ddp/ranks/bell.h"
#include "ddp/ranks/process_group.h"

namespace ddp {

/// The memory that the ranks of a group share. It has no name in any file system: when the last rank
/// has ended, in whatever way, it is gone. Only pages in use take memory.
///
/// Collectives go through cells: each rank has a few, which it fills in turn, round by round, and
/// which all ranks read. Messages go through channels, one for each pair of ranks, direction and tag.
class SharedMemory {
 public:
  static constexpr int kCells = 4;
  static constexpr std::int64_t kCellBytes = std::int64_t{128} << 10;
  static constexpr int kTags = 4;
  static constexpr std::int64_t kChannelBytes = std::int64_t{512} << 10;

  /// A rank's place. Counts are of rounds since the group was made.
  struct Member {
    alignas(64) std::atomic<std::uint64_t> posted;  // cells that it has filled
    alignas(64) std::atomic<std::uint64_t> read;    // rounds of which it has read all cells
    std::atomic<int> process;
  };

  /// A stream of bytes from one rank to another. Counts are of bytes.
  struct Channel {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    alignas(64) char bytes[kChannelBytes];
  };

  /// All ranks must call it; it returns when they have. Throws c10::Error if a rank cannot open what
  /// rank 0 has made.
  SharedMemory(const StorePtr& store, int rank, int world_size);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  int rank() const { return rank_; }
  std::span<Member> members() const;
  Member& me() const { return members()[rank_]; }
  /// The cell that a rank fills in a round.
  char* cell(int rank, std::uint64_t round) const;
  Channel& channel(int from, int to, int tag) const;
  /// Rung with every change.
  Bell& bell() const;
  /// True if the rank's process is no more.
  bool has_ended(int rank) const;

 private:
  int rank_, world_size_;
  std::size_t bytes_;
  char* memory_;  // the mapping
};

}  // namespace ddp
