#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ddp/backends/backend_decorator.h"
#include "ddp/backends/worker_queue.h"
#include "ddp/referee/witness.h"

namespace ddp {

class ClientWork;

/// What a ClientWork needs of its rank's client.
class WorkOwner {
 public:
  WorkOwner() = default;
  WorkOwner(const WorkOwner&) = delete;
  WorkOwner& operator=(const WorkOwner&) = delete;
  virtual ~WorkOwner() = default;

  virtual Witness& witness() = 0;
  virtual void count_handles(int change) = 0;
  /// The operation's result has been delivered.
  virtual void forget(const ClientWork& work) = 0;
  /// Calls deliver_to_future() on another thread, which does the works of one `key` in the order of
  /// the schedule, unless the result has been delivered by then.
  virtual void deliver_later(std::int64_t operation, const QueueKey& key) = 0;
  /// Calls `complete` on the same thread once this one sleeps.
  virtual void complete_later(const QueueKey& key, std::function<void()> complete) = 0;
};

/// The fact that somebody has taken an operation's future: its number.
constexpr const char* kTookFuture = "took a future";

/// What an operation that World::failure names says.
constexpr const char* kConnectionLost = "connection lost (this body lets communication fail once)";

/// The handle of an operation in a refereed world. The result is delivered to the caller's tensors by
/// wait(), by a poll that returns true, or, where a future was taken, once the launching thread is
/// asleep: so what uses it too early does so in every run. A message's handle then lets go of its
/// tensor, and its future has no value.
class ClientWork : public c10d::Work {
 public:
  /// Poisons the outputs; the inputs have been copied. If it `fails`, there is no result.
  ClientWork(std::shared_ptr<WorkOwner> owner, Operation operation, const Event& launch,
             std::vector<std::string> names, bool fails);
  ClientWork(const ClientWork&) = delete;
  ClientWork& operator=(const ClientWork&) = delete;
  ~ClientWork() override;

  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;
  void synchronize() override {}
  std::vector<at::Tensor> result() override { return operation_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  const Operation& operation() const { return operation_; }
  std::int64_t number() const { return launch_.operation; }
  std::string description() const { return describe_operation(launch_); }

  /// The name of the buffer that `tensor` overlaps and that nobody may write (or read, if not
  /// `writes`) now; none if the access is allowed.
  std::optional<std::string> forbids(const at::Tensor& tensor, bool writes) const;
  bool has_future() const;
  /// True on the first call for each kind of access.
  bool first_access(bool writes);
  /// Tells, once, that somebody has written the beginning of a buffer in flight.
  void look() { look(/*whole=*/false); }
  /// Waits for the answer, and until the launching thread sleeps.
  void await_its_turn();
  /// Waits for the answer, and completes the future.
  void deliver_to_future();

 private:
  bool is_delivered() const;
  void look(bool whole);
  /// The name of a buffer whose memory somebody has let go; none if there is none.
  std::optional<std::string> lost_buffer() const;
  /// The name of a buffer that somebody has written; none if there is none.
  std::optional<std::string> changed_buffer(bool whole) const;
  Answer answer_to_poll(int polls);
  void hold_callbacks();
  void deliver(Answer answer, bool to_waiter);
  void copy_out();
  void complete(const c10::intrusive_ptr<c10::ivalue::Future>& future, bool to_waiter);

  const std::shared_ptr<WorkOwner> owner_;
  Operation operation_;
  const Event launch_;
  const std::vector<std::string> names_;
  const int caller_;  // the launching thread's id
  const bool watched_;
  const bool fails_;
  std::vector<char> sent_;  // the inputs, where the arena gets another tensor's result

  std::once_flag delivery_;
  mutable std::mutex delivery_mutex_;  // guards all below
  bool delivered_ = false;
  bool damaged_ = false;
  bool accessed_[2] = {false, false};  // read, written
  bool caller_rests_ = false;
  int polls_ = 0;

  // Of polls by the body's thread, which alone uses them.
  int asking_poll_ = 0;
  int polls_held_ = 0;
  std::int32_t ready_at_poll_ = -1;
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace ddp
