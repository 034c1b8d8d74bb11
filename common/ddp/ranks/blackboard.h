#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ddp/ranks/peer_gone.h"

namespace ddp {

/// A rank's progress. The parent sets kGone when the process has ended.
enum class RankPhase : std::uint32_t { kStarting, kRunning, kFinished, kFailed, kGone };

/// What a rank publishes about an operation at its launch: enough to compare it with the other
/// ranks' operations and to compute its virtual time. Plain data, because it lives in shared
/// memory.
struct OperationRecord {
  std::uint8_t op = 0;         // c10d::OpType
  std::uint8_t dtype = 0;      // at::ScalarType
  std::uint8_t reduce_op = 0;  // c10d::ReduceOp::RedOpType
  std::int32_t peer = -1;      // the root, or the other end of a message; -1 if there is none
  std::int32_t tag = 0;
  std::int64_t bytes = 0;    // payload, see Operation::payload_bytes()
  std::int64_t time_ns = 0;  // the caller's virtual clock at launch
  char shape[64] = {};
  char name[96] = {};
};

/// Memory shared by a parent and the ranks it forks: what each rank is doing, and the operations it
/// has launched. It survives a rank's death, so the parent can tell where the rank died; and ranks
/// see each other's launches without using the network under test.
///
/// Any thread of any rank may call all functions. A rank writes only its own part.
class Blackboard {
 public:
  static constexpr int kMaxChannels = 8;
  static constexpr int kMaxOperations = 1 << 15;

  /// Maps the memory; must be called before the fork. Pages take no memory until they are written.
  explicit Blackboard(int world_size);
  Blackboard(const Blackboard&) = delete;
  Blackboard& operator=(const Blackboard&) = delete;
  ~Blackboard();

  int world_size() const { return world_size_; }

  void set_phase(int rank, RankPhase phase);
  RankPhase phase(int rank) const;

  /// One line that says what the rank is doing now; shown if it dies or hangs.
  void set_activity(int rank, std::string_view activity);
  std::string activity(int rank) const;

  /// Opens a channel, a sequence of operations that the ranks compare; each backend opens those it
  /// needs. The n-th call on each rank returns the same channel: all ranks make their backends in
  /// the same order.
  int open_channel(int rank);

  /// Appends a record to the rank's list in a channel; returns its index there.
  std::int64_t publish(int channel, int rank, const OperationRecord& record);

  /// Waits for record `index` of `rank`. Throws PeerGone if the rank ends without it.
  const OperationRecord& wait_for(int channel, int rank, std::int64_t index);

  /// The same without waiting: null if the record is not there yet.
  const OperationRecord* find(int channel, int rank, std::int64_t index) const;

  /// Blocks until `condition` is true; it is evaluated again whenever the board changes.
  void wait_until(const std::function<bool()>& condition);

  /// Makes all waiting threads evaluate their conditions again.
  void notify();

 private:
  struct Memory;
  struct RankSlot;
  struct Channel;
  Channel& channel_of(int channel, int rank) const;
  RankSlot& slot(int rank) const;

  int world_size_;
  std::size_t bytes_;
  Memory* memory_;  // the mapping, released by munmap
};

}  // namespace ddp
