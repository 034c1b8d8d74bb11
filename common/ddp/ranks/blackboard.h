#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ddp {

/// How far a rank has come. The parent sets kGone when the process has ended.
enum class RankPhase : std::uint32_t { kStarting, kRunning, kFinished, kFailed, kGone };

/// Thrown in a rank that waits for another one which will never come.
class PeerGone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a rank publishes about one operation at its launch: enough to compare it with the other
/// ranks' and to compute its virtual time. Plain data, because it lives in shared memory.
struct OperationRecord {
  std::uint8_t op = 0;         // c10d::OpType
  std::uint8_t dtype = 0;      // at::ScalarType
  std::uint8_t reduce_op = 0;  // c10d::ReduceOp::RedOpType
  std::int32_t peer = -1;      // the root, or the other end of a message; -1: none
  std::int32_t tag = 0;
  std::int64_t bytes = 0;    // payload, see Operation::payload_bytes()
  std::int64_t time_ns = 0;  // the caller's virtual clock at launch
  char shape[64] = {};
  char name[96] = {};
};

/// Shared memory of a parent and the ranks it forks: what each rank is doing, and the operations it
/// launched. It survives a rank's death, so that the parent can tell where it died; and ranks see
/// each other's launches without using the network under test.
///
/// All functions may be called by any thread of any rank. A rank writes only its own part.
class Blackboard {
 public:
  static constexpr int kMaxChannels = 8;
  static constexpr int kMaxOperations = 1 << 15;

  /// Maps the memory; to be called before the fork. Pages are real only once they are written.
  explicit Blackboard(int world_size);
  Blackboard(const Blackboard&) = delete;
  Blackboard& operator=(const Blackboard&) = delete;
  ~Blackboard();

  int world_size() const { return world_size_; }

  void set_phase(int rank, RankPhase phase);
  RankPhase phase(int rank) const;

  /// One line that says what the rank is doing now; shown when it dies or hangs there.
  void set_activity(int rank, std::string_view activity);
  std::string activity(int rank) const;

  /// A sequence of operations that ranks compare, one for every backend that needs it. The n-th
  /// call in each rank names the same channel: backends are made in the same order everywhere.
  int open_channel(int rank);

  /// Appends a record to the rank's list in a channel; returns its index there.
  std::int64_t publish(int channel, int rank, const OperationRecord& record);

  /// The record `index` of `rank`, as soon as it is there. Throws PeerGone when the rank ended
  /// without it.
  const OperationRecord& wait_for(int channel, int rank, std::int64_t index);

  /// The same without waiting: none if it is not there yet.
  const OperationRecord* find(int channel, int rank, std::int64_t index) const;

  /// Blocks until `condition` is true; it is looked at again whenever anything on the board
  /// changes.
  void wait_until(const std::function<bool()>& condition);

  /// Says that something which others wait for has changed.
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
