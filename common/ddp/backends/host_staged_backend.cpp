#include "ddp/backends/host_staged_backend.h"

#include <c10/core/Event.h>

#include <mutex>
#include <optional>

namespace ddp {

namespace {

using Tensors = std::vector<at::Tensor>;

// The stream on which this thread queues GPU work; none for host memory.
std::optional<c10::Stream> current_stream(const at::Device& device) {
  if (device.is_cpu()) {
    return std::nullopt;
  }
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

Tensors to_host(const Tensors& tensors, bool with_contents) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) {
    const bool pinned = !tensor.is_cpu();
    at::Tensor copy =
        at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(pinned));
    if (with_contents) {
      copy.copy_(tensor, /*non_blocking=*/true);
    }
    copies.push_back(std::move(copy));
  }
  return copies;
}

class StagedWork : public WorkDecorator {
 public:
  StagedWork(WorkPtr inner, Tensors targets, Tensors copies)
      : WorkDecorator(std::move(inner)), targets_(std::move(targets)), copies_(std::move(copies)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = WorkDecorator::wait(timeout);
    deliver();
    return done;
  }

  void synchronize() override {
    WorkDecorator::synchronize();
    deliver();
  }

  Tensors result() override { return targets_; }

  // Completes with the caller's own tensors. A wait for it makes the waiting thread's current
  // stream wait for the copy.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    std::vector<at::Device> devices;
    if (!targets_.empty() && !targets_[0].is_cpu()) {
      devices.push_back(targets_[0].device());
    }
    auto delivered =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(), std::move(devices));
    auto self = c10::intrusive_ptr<StagedWork>::reclaim_copy(this);
    inner()->getFuture()->addCallback([self, delivered](c10::ivalue::Future& reduced) {
      if (reduced.hasError()) {
        delivered->setError(reduced.exception_ptr());
        return;
      }
      self->deliver();
      delivered->markCompleted(c10::IValue(self->targets_));
    });
    return delivered;
  }

 private:
  // Called when the inner work is done. The first call queues the copy back on the current stream;
  // every later one makes its current stream wait for that copy.
  void deliver() {
    if (targets_.empty()) {
      return;
    }
    const std::lock_guard lock(mutex_);
    const auto stream = current_stream(targets_[0].device());
    if (!delivered_) {
      copy_back(stream);
      delivered_ = true;
    } else if (stream) {
      copied_->block(*stream);
    }
  }

  void copy_back(const std::optional<c10::Stream>& stream) {
    const at::NoGradGuard no_grad;  // the targets are a caller's parameters or gradients
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      targets_[i].copy_(copies_[i], /*non_blocking=*/true);
      if (stream) {
        // Its memory is in use there, even if the caller drops it.
        targets_[i].record_stream(*stream);
      }
    }
    if (stream) {
      copied_.emplace(stream->device_type());
      copied_->record(*stream);
    }
  }

  Tensors targets_;
  Tensors copies_;
  std::mutex mutex_;
  bool delivered_ = false;
  std::optional<c10::Event> copied_;
};

}  // namespace

HostStagedBackend::HostStagedBackend(BackendPtr inner, Staging staging)
    : BackendDecorator(std::move(inner)), staging_(staging) {}

WorkPtr HostStagedBackend::run(Operation operation) {
  if (!must_stage(operation)) {
    return operation.start(inner(), operation);
  }
  Operation staged = operation;
  {
    const at::NoGradGuard no_grad;
    staged.inputs = to_host(operation.inputs, /*with_contents=*/true);
    staged.outputs = to_host(operation.outputs, operation.in_place);
  }
  const Tensors& any = operation.inputs.empty() ? operation.outputs : operation.inputs;
  if (const auto stream = current_stream(any[0].device())) {
    stream->synchronize();
  }
  WorkPtr work = staged.start(inner(), staged);
  return c10::make_intrusive<StagedWork>(std::move(work), std::move(operation.outputs),
                                         std::move(staged.outputs));
}

bool HostStagedBackend::must_stage(const Operation& operation) const {
  for (const Tensors* tensors : {&operation.inputs, &operation.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (staging_ == Staging::kAllTensors || !tensor.is_cpu()) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace ddp
