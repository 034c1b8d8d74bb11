#include "ddp/backends/worker_queue.h"

#include <future>
#include <memory>

namespace ddp {

QueueKey queue_key(const Operation& operation) {
  return operation.is_message() ? QueueKey{operation.type, operation.peer, operation.tag}
                                : QueueKey{c10d::OpType::UNKNOWN, -1, 0};
}

WorkerQueue::~WorkerQueue() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void WorkerQueue::submit(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void WorkerQueue::drain() {
  const auto reached = std::make_shared<std::promise<void>>();
  submit([reached] { reached->set_value(); });
  reached->get_future().wait();
}

void WorkerQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
    if (jobs_.empty()) {
      return;
    }
    {
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      // The job is destroyed here, without the lock: it may hold the last reference to something
      // large.
    }
    lock.lock();
  }
}

}  // namespace ddp
