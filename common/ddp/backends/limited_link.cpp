#include "ddp/backends/limited_link.h"

#include <ATen/ATen.h>

#include <chrono>
#include <thread>
#include <utility>

namespace ddp {

namespace {

class LimitedWork : public c10d::Work {
 public:
  LimitedWork(Operation operation, std::chrono::nanoseconds cost)
      : Work(-1, operation.type),
        operation_(std::move(operation)),
        cost_(cost),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors())) {}

  /// Runs the operation, then sleeps until its cost has passed. Called on a worker queue.
  void transfer(c10d::Backend& backend) {
    const auto end = std::chrono::steady_clock::now() + cost_;
    try {
      operation_.start(backend, operation_)->wait();
    } catch (...) {
      finish(std::current_exception());
      future_->setError(std::current_exception());
      return;
    }
    std::this_thread::sleep_until(end);
    finish();
    future_->markCompleted(c10::IValue(operation_.outputs));
  }

  void synchronize() override {}
  std::vector<at::Tensor> result() override { return operation_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  Operation operation_;
  const std::chrono::nanoseconds cost_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace

LimitedLink::LimitedLink(BackendPtr inner, const NetworkModel& network)
    : BackendDecorator(std::move(inner)), network_(network) {}

WorkPtr LimitedLink::run(Operation operation) {
  const QueueKey key = queue_key(operation);
  const std::chrono::nanoseconds cost(
      cost_ns(network_, operation.type, operation.payload_bytes(), getSize()));
  auto work = c10::make_intrusive<LimitedWork>(std::move(operation), cost);
  const std::lock_guard lock(mutex_);
  queues_[key].submit([this, work] { work->transfer(inner()); });
  return work;
}

}  // namespace ddp
