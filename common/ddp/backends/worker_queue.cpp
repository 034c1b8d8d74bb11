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

namespace {

class QueuedWork final : public c10d::Work {
 public:
  explicit QueuedWork(Operation operation)
      : Work(-1, operation.type), operation_(std::move(operation)) {}

  void run(const std::function<void(Operation&)>& transfer) {
    try {
      transfer(operation_);
    } catch (...) {
      finish(std::current_exception());
      return future_->setError(std::current_exception());
    }
    finish();
    future_->markCompleted(c10::IValue(operation_.outputs));
  }

  void synchronize() override {}
  std::vector<at::Tensor> result() override { return operation_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  Operation operation_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
};

}  // namespace

WorkPtr OperationQueues::submit(Operation operation, std::function<void(Operation&)> transfer) {
  const QueueKey key = queue_key(operation);
  auto work = c10::make_intrusive<QueuedWork>(std::move(operation));
  const std::lock_guard lock(mutex_);
  queues_[key].submit([work, transfer = std::move(transfer)] { work->run(transfer); });
  return work;
}

}  // namespace ddp
