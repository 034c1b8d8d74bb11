#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "ddp/backends/backend_decorator.h"
#include "ddp/referee/completion_hold.h"
#include "ddp/referee/race_list.h"

namespace ddp {

/// An operation between its launch and its delivery. It works on private copies of the caller's
/// tensors, whose own memory is poisoned at launch. The result is delivered to that memory when the
/// caller learns that the operation is complete: by wait(), by a poll that returns true, or, if it
/// took a future, once the launching thread is asleep. A CompletionHold may postpone each of these.
/// Delivery finds every write in between, the same way in every run.
class PendingWork : public c10d::Work {
 public:
  /// What a work reports, and where.
  struct Report {
    std::int64_t number = 0;         // the operation's
    std::string description;         // "all-reduce #3 of the gradient of fc1.weight (400 bytes)"
    std::vector<std::string> names;  // of its tensors, inputs first
    std::shared_ptr<RaceList> races;
    std::weak_ptr<CompletionHold> hold;  // the backend's: a handle may outlive it
  };

  /// Copies the tensors and poisons the outputs.
  PendingWork(Operation operation, Report report);

  /// Runs the operation on `backend` with the private copies, blocking. Called once, on a worker
  /// queue. Calls `agree` first; if that throws, the operation fails with its exception.
  void execute(c10d::Backend& backend, const std::function<void()>& agree);

  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;
  void synchronize() override {}
  std::vector<at::Tensor> result() override { return operation_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  /// True until the result has been delivered.
  bool in_flight() const;

  /// The name of the buffer that `tensor` overlaps and that must not be written (or read, if not
  /// `writes`) now; none if the access is allowed.
  std::optional<std::string> forbids(const at::Tensor& tensor, bool writes) const;

  /// True on the first call for each kind of access.
  bool first_access(bool writes);

  const std::string& description() const { return report_.description; }

 private:
  bool deferred();
  void deliver();
  void deliver_when_caller_sleeps();
  void check_untouched();
  void complete(c10::ivalue::Future& future) const;

  Operation operation_;              // the caller's tensors
  std::vector<at::Tensor> inputs_;   // private copies
  std::vector<at::Tensor> outputs_;  // private copies
  const Report report_;
  const int caller_;  // the launching thread's id

  mutable std::mutex pending_mutex_;
  std::condition_variable ready_changed_;
  bool ready_ = false;                 // the private copies hold the result, or error_ is set
  bool delivered_ = false;             // the caller's tensors hold the result
  bool accessed_[2] = {false, false};  // read, written, by operators that AccessWatch saw
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace ddp
