#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <tuple>

#include "ddp/backends/backend_decorator.h"

namespace ddp {

/// Operations of one key go one after the other, on one queue: all collectives of a group, and all
/// messages of one direction, peer and tag, so that a blocked message delays nothing else.
using QueueKey = std::tuple<c10d::OpType, int, int>;
QueueKey queue_key(const Operation& operation);

/// A thread that does what it is given, in order. Destruction lets it finish what it has.
class WorkerQueue {
 public:
  WorkerQueue() : thread_([this] { work(); }) {}
  WorkerQueue(const WorkerQueue&) = delete;
  WorkerQueue& operator=(const WorkerQueue&) = delete;
  ~WorkerQueue();

  /// `job` must not throw.
  void submit(std::function<void()> job);

  /// Returns when everything submitted so far has been done, and destroyed.
  void drain();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool closing_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace ddp
