#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ddp/backends/worker_queue.h"
#include "ddp/referee/race_list.h"

namespace ddp {

/// Hides the completion of operations from all threads while one thread, the holder, must not wait:
/// inside backward. A wait of the holder is thus detected, not timed: the operation is added to the
/// list of findings, and the hold is lifted so that the program continues.
///
/// The holder waits if it calls wait(), polls one operation again and again, or sleeps while a
/// future or another thread expects a completion. Other threads may wait; they are released when
/// the hold ends.
class CompletionHold {
 public:
  explicit CompletionHold(std::shared_ptr<RaceList> findings) : findings_(std::move(findings)) {}

  /// Makes the calling thread the holder, until end(). One hold at a time.
  void begin();
  void end();

  /// Returns when all deferred operations have been completed and dropped. Must not be called
  /// inside a hold.
  void settle();

  /// Called before a wait for `operation`. Returns when the wait is allowed.
  void before_wait(const std::string& operation);

  /// Called before a poll of `operation` is answered. If false, the answer must be "not yet".
  bool may_answer_poll(const std::string& operation);

  /// Called before the future of `operation` is completed. If false, the caller completes it now;
  /// if true, the hold calls `complete` later, on its own thread.
  bool defer(const std::string& operation, std::function<void()> complete);

 private:
  using Lock = std::unique_lock<std::mutex>;
  void watch_holder();
  void lift(const Lock&, const std::string& finding);
  void release();

  const std::shared_ptr<RaceList> findings_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int holder_ = 0;                    // its thread id
  std::string awaited_;               // an operation that a future or another thread waits for
  std::map<std::string, int> polls_;  // by the holder, of each operation
  std::vector<std::function<void()>> deferred_;
  std::optional<WorkerQueue> helper_;  // watches the holder, then runs deferred_
};

}  // namespace ddp
