#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "ddp/backends/operation_backend.h"

namespace ddp {

/// Operations with the same key run one after the other, on one queue: all collectives of a group
/// share a key, and so do all messages of one direction, peer and tag. So a blocked message delays
/// nothing else.
using QueueKey = std::tuple<c10d::OpType, int, int>;
QueueKey queue_key(const Operation& operation);

/// A thread that runs the jobs submitted to it, in order. Destruction waits until all have run.
class WorkerQueue {
 public:
  WorkerQueue() : thread_([this] { work(); }) {}
  WorkerQueue(const WorkerQueue&) = delete;
  WorkerQueue& operator=(const WorkerQueue&) = delete;
  ~WorkerQueue();

  /// `job` must not throw.
  void submit(std::function<void()> job);

  /// Returns when all jobs submitted so far have run and been destroyed.
  void drain();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool closing_ = false;
  std::thread thread_;  // last: it uses the others
};

/// The queues of a backend. Destruction waits until all operations are done.
class OperationQueues {
 public:
  /// Runs `transfer` with the operation on the queue of its key. The handle, which keeps the tensors,
  /// and its future are complete when that returns, or have failed if it throws.
  WorkPtr submit(Operation operation, std::function<void(Operation&)> transfer);

 private:
  std::mutex mutex_;
  std::map<QueueKey, WorkerQueue> queues_;
};

}  // namespace ddp
