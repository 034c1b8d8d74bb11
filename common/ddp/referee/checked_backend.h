#pragma once

#include <map>
#include <memory>
#include <optional>

#include "ddp/backends/backend_decorator.h"
#include "ddp/backends/tensor_names.h"
#include "ddp/backends/worker_queue.h"
#include "ddp/ranks/blackboard.h"
#include "ddp/referee/access_watch.h"
#include "ddp/referee/pending_work.h"

namespace ddp {

/// Finds misuse of communication, the same way in every run:
///
/// - Ranks that disagree: before an operation starts, the ranks' type, shape, dtype, reduction and
///   root are compared over the blackboard. If they differ, all ranks fail with one report that
///   names them. No rank waits for one that has ended.
/// - Races: buffers in flight are poisoned, see PendingWork.
/// - Waits inside backward: see HeldCompletions.
/// - Forgotten waits: see pending().
///
/// All collectives run on one worker queue; messages have a queue for each direction, peer and tag,
/// so that a blocked message delays nothing else. A send completes only with its recv. CPU tensors
/// only.
class CheckedBackend : public BackendDecorator, public AccessListener {
 public:
  CheckedBackend(BackendPtr inner, std::shared_ptr<const TensorNames> names, Blackboard& board);

  WorkPtr run(Operation operation) override;

  /// All races found so far, and all waits while completions were held back.
  std::vector<std::string> races() const { return races_->all(); }

  /// Operations that have not been waited for.
  std::vector<std::string> pending() const;

  /// Returns when the backend no longer holds the tensors of delivered operations, which may
  /// outlive the caller's own references for a while. Must not be called while completions are held
  /// back.
  void settle();

  /// Called for each access by the rank's own code, with the operator, such as "aten::div_"; adds a
  /// race if `tensor` is a buffer in flight.
  void note_access(const at::Tensor& tensor, bool writes, const char* operator_name) override;

 private:
  friend class HeldCompletions;
  using PendingWorkPtr = c10::intrusive_ptr<PendingWork>;
  struct QueueState {
    std::int64_t partner_cursor = 0;  // next message to look at in the other rank's list
    WorkerQueue queue;                // last: its jobs use the others
  };

  void agree_on_collective(std::int64_t index, const std::string& description);
  void agree_on_message(const Operation& operation, const OperationRecord& mine, QueueState& queue,
                        const std::string& description);
  void refuse_buffers_in_flight(const Operation& operation, const std::string& description);
  std::vector<PendingWorkPtr> pending_works() const;
  void forget_delivered();

  std::shared_ptr<const TensorNames> names_;
  Blackboard& board_;
  const int collectives_;  // channels of the blackboard
  const int messages_;
  std::shared_ptr<RaceList> races_ = std::make_shared<RaceList>();
  std::shared_ptr<CompletionHold> hold_ = std::make_shared<CompletionHold>(races_);
  mutable std::mutex mutex_;
  std::vector<PendingWorkPtr> pending_;
  std::int64_t launches_ = 0;
  std::map<QueueKey, QueueState> queues_;  // last: destroyed first, which ends the threads
};

/// While it lives, no operation of `backend` completes for its callers, and the thread that made it
/// must not wait for one: its scope encloses a backward. A wait is added to
/// CheckedBackend::races(), with the operation's name; see CompletionHold.
class HeldCompletions {
 public:
  explicit HeldCompletions(CheckedBackend& backend) : hold_(backend.hold_) { hold_->begin(); }
  HeldCompletions(const HeldCompletions&) = delete;
  HeldCompletions& operator=(const HeldCompletions&) = delete;
  ~HeldCompletions() { hold_->end(); }

 private:
  std::shared_ptr<CompletionHold> hold_;
};

}  // namespace ddp
