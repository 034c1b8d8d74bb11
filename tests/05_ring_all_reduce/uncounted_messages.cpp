#include "uncounted_messages.h"

#include <ATen/ATen.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ddp::testing {

namespace {

// Memory that does not come from the allocator.
at::Tensor private_like(const at::Tensor& tensor) {
  auto memory = std::make_shared<std::vector<char>>(tensor.nbytes());
  return at::from_blob(
      memory->data(), tensor.sizes(), [memory](void*) {}, tensor.options());
}

// Copies received data to the caller's tensors, and releases them.
class UncountedWork : public WorkDecorator {
 public:
  UncountedWork(WorkPtr inner, std::vector<at::Tensor> received, std::vector<at::Tensor> wanted)
      : WorkDecorator(std::move(inner)),
        received_(std::move(received)),
        wanted_(std::move(wanted)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = inner().wait(timeout);
    deliver();
    return done;
  }

  bool isCompleted() override {
    const bool done = inner().isCompleted();
    if (done) {
      deliver();
    }
    return done;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const auto self = c10::intrusive_ptr<UncountedWork>::unsafe_reclaim_from_nonowning(this);
    return inner().getFuture()->then(
        [self](c10::ivalue::Future& future) {
          future.value();  // throws if it failed
          self->deliver();
          return c10::IValue();
        },
        c10::NoneType::get());
  }

 private:
  void deliver() {
    const std::lock_guard lock(mutex_);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      wanted_[i].copy_(received_[i]);
    }
    wanted_.clear();
    received_.clear();
  }

  std::mutex mutex_;
  std::vector<at::Tensor> received_, wanted_;
};

class UncountedMessages : public BackendDecorator {
 public:
  using BackendDecorator::BackendDecorator;

  WorkPtr run(Operation operation) override {
    if (!operation.is_message()) {
      return operation.start(inner(), operation);
    }
    Operation uncounted = operation;
    for (at::Tensor& input : uncounted.inputs) {
      input = private_like(input).copy_(input);
    }
    for (at::Tensor& output : uncounted.outputs) {
      output = private_like(output);
    }
    return c10::make_intrusive<UncountedWork>(operation.start(inner(), uncounted),
                                              uncounted.outputs, operation.outputs);
  }
};

}  // namespace

ProcessGroupPtr make_uncounted_group(Rank& rank) {
  const auto recorder =
      c10::intrusive_ptr<RecordingBackend>::unsafe_reclaim_from_nonowning(&rank.recorder());
  return make_process_group(c10::make_intrusive<UncountedMessages>(recorder), rank.context().store);
}

}  // namespace ddp::testing
