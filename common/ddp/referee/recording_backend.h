#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "ddp/backends/backend_decorator.h"
#include "ddp/backends/tensor_names.h"
#include "ddp/ranks/blackboard.h"

namespace ddp {

/// One operation as a rank launched it.
struct RecordedOperation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  c10d::ReduceOp::RedOpType reduce_op = c10d::ReduceOp::UNUSED;
  std::int64_t bytes = 0;  // payload, see Operation::payload_bytes()
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  int peer = -1;
  int tag = 0;
  std::string name;  // of its first tensor
  /// Positions in the order of everything the recorder saw; -1: not yet.
  std::int64_t launched = -1;
  std::int64_t waited = -1;

  bool is_all_reduce() const;
  bool is_message() const { return c10d::isP2POp(type); }
};

/// Records every operation of this rank, in order, and shows on the blackboard what the rank is
/// doing. Tests check the taught property on this record.
class RecordingBackend : public BackendDecorator {
 public:
  /// `board` may be null.
  RecordingBackend(BackendPtr inner, std::shared_ptr<const TensorNames> names,
                   Blackboard* board = nullptr);

  WorkPtr run(Operation operation) override;

  /// Everything since the start or the last clear().
  std::vector<RecordedOperation> operations() const;
  void clear();

  /// Takes a position in the order of launches and waits, for an event of the test itself, such as
  /// the beginning of backward.
  std::int64_t mark();

  /// Number of operation handles still alive, waited for or not; it must not grow from step to
  /// step.
  std::int64_t live_handles() const { return live_handles_; }

 private:
  friend class RecordedWork;
  void note_activity(const std::string& activity);

  // A work may be waited for on another thread.
  mutable std::mutex mutex_;
  std::vector<RecordedOperation> operations_;
  std::int64_t next_position_ = 0;
  std::int64_t cleared_ = 0;  // how many clear()s: a wait for an older operation is not recorded
  std::shared_ptr<const TensorNames> names_;
  Blackboard* board_;
  std::int64_t launches_ = 0;
  std::atomic<std::int64_t> live_handles_ = 0;
};

}  // namespace ddp
