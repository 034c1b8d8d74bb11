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

/// Keeps the completion of operations from everybody while one thread, the holder, is where it must
/// not wait: inside backward. If it waits all the same, that is found out instead of timed: the
/// operation is named in the list of findings and the hold is lifted, so that the program goes on.
///
/// The holder waits when it calls wait(); when it polls one operation again and again; or when it
/// sleeps while a future, or another thread, is to be told of a completion. Other threads may wait,
/// until the hold ends.
class CompletionHold {
 public:
  explicit CompletionHold(std::shared_ptr<RaceList> findings) : findings_(std::move(findings)) {}

  /// Makes the calling thread the holder, until end(). One hold at a time.
  void begin();
  void end();

  /// Returns when what was deferred has been completed and forgotten. Not inside a hold.
  void settle();

  /// To be called before somebody waits for `operation`. Returns when that is allowed.
  void before_wait(const std::string& operation);

  /// To be called before a poll of `operation` is answered. False: the answer must be "not yet".
  bool may_answer_poll(const std::string& operation);

  /// To be called before the future of `operation` is completed. False: go on. True: `complete` is
  /// called later, on a thread of the hold's.
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
  std::string awaited_;               // an operation that others than the holder wait for, if any
  std::map<std::string, int> polls_;  // by the holder, of each operation
  std::vector<std::function<void()>> deferred_;
  std::optional<WorkerQueue> helper_;  // watches the holder; then completes what was deferred
};

}  // namespace ddp
