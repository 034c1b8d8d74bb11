#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "ddp/backends/backend_decorator.h"
#include "ddp/referee/completion_hold.h"
#include "ddp/referee/race_list.h"

namespace ddp {

/// An operation between its launch and its delivery. From the launch on it works on private copies
/// of the caller's tensors, whose own memory is poisoned; the result is put there when the caller
/// learns that the operation is complete: by wait(), by a poll that says so, or, where it took a
/// future, once the launching thread is asleep; none of these before a CompletionHold allows it.
/// Whatever was touched in between is found at that moment, the same way in every run.
class PendingWork : public c10d::Work {
 public:
  /// What a work says, to whom, and when.
  struct Report {
    std::int64_t number = 0;         // the operation's
    std::string description;         // "all-reduce #3 of the gradient of fc1.weight (400 bytes)"
    std::vector<std::string> names;  // of its tensors, inputs first
    std::shared_ptr<RaceList> races;
    std::weak_ptr<CompletionHold> hold;  // the backend's: a handle may outlive it
  };

  /// Copies and poisons.
  PendingWork(Operation operation, Report report);

  /// Runs it on `backend` with the private copies, blocking. To be called once, on a thread of the
  /// decorator's. `agree` is called first, and may throw what the operation shall fail with.
  void execute(c10d::Backend& backend, const std::function<void()>& agree);

  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;
  void synchronize() override {}
  std::vector<at::Tensor> result() override { return operation_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  /// True until the result has been delivered.
  bool in_flight() const;

  /// Says which of its buffers, if any, may not be touched that way now; `writes` is the kind of
  /// access.
  std::optional<std::string> forbids(const at::Tensor& tensor, bool writes) const;

  /// True the first time that an access of that kind is found.
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
  bool delivered_ = false;             // the caller's tensors do
  bool accessed_[2] = {false, false};  // read, written: as far as operators have been seen to
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace ddp
