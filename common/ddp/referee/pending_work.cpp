#include "ddp/referee/pending_work.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "ddp/backends/tensor_names.h"
#include "ddp/referee/poison.h"
#include "ddp/referee/thread_sleep.h"

namespace ddp {

namespace {

// Guards the harness's own accesses: without autograd, and hidden from AccessWatch.
struct OwnAccess {
  at::NoGradGuard no_grad;
  at::RecordFunctionGuard unobserved{false};
};

// A copy outside libtorch's allocator, so that a memory test counts only the code under test.
at::Tensor private_copy(const at::Tensor& tensor) {
  auto memory = std::make_shared<std::vector<char>>(tensor.nbytes());
  at::Tensor copy = at::from_blob(
      memory->data(), tensor.sizes(), tensor.strides(), [memory](void*) {}, tensor.options());
  // variable_data(): the caller's version counter stays as with a real backend.
  copy.copy_(tensor.variable_data());
  return copy;
}

std::vector<at::Tensor> private_copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "communication needs a dense tensor, not ",
                describe_tensor(tensor), " with strides ", tensor.strides());
    copies.push_back(private_copy(tensor));
  }
  return copies;
}

// True if the thread is asleep and stays so for a moment.
bool is_asleep(int thread) {
  const ThreadSleep before = look_at_thread(thread);
  std::this_thread::sleep_for(std::chrono::microseconds(300));
  return before.asleep && before == look_at_thread(thread);
}

// A caller that polls a future never sleeps; its result is delivered after this time.
constexpr auto kPollingPatience = std::chrono::milliseconds(200);

}  // namespace

PendingWork::PendingWork(Operation operation, Report report)
    : Work(-1, operation.type),
      operation_(std::move(operation)),
      report_(std::move(report)),
      caller_(this_thread_id()) {
  const OwnAccess own;
  inputs_ = private_copies(operation_.inputs);
  outputs_ = private_copies(operation_.outputs);
  for (const at::Tensor& output : operation_.outputs) {
    poison(output.variable_data(), report_.number);
  }
}

void PendingWork::execute(c10d::Backend& backend, const std::function<void()>& agree) {
  std::exception_ptr error;
  try {
    agree();
    Operation on_copies = operation_;
    on_copies.inputs = inputs_;
    on_copies.outputs = outputs_;
    operation_.start(backend, on_copies)->wait();
  } catch (...) {
    error = std::current_exception();
  }
  bool future_wanted = false;
  {
    const std::lock_guard lock(pending_mutex_);
    ready_ = true;
    error_ = error;
    future_wanted = future_ != nullptr;
  }
  ready_changed_.notify_all();
  if (future_wanted && !deferred()) {
    deliver_when_caller_sleeps();
  }
}

bool PendingWork::wait(std::chrono::milliseconds timeout) {
  if (const auto hold = report_.hold.lock()) {
    hold->before_wait(report_.description);
  }
  {
    std::unique_lock lock(pending_mutex_);
    const auto ready = [&] { return ready_; };
    if (timeout == kNoTimeout) {
      ready_changed_.wait(lock, ready);
    } else {
      TORCH_CHECK(ready_changed_.wait_for(lock, timeout, ready), report_.description,
                  " took longer than ", timeout.count(), " ms");
    }
  }
  deliver();
  if (error_) {
    std::rethrow_exception(error_);
  }
  return true;
}

bool PendingWork::isCompleted() {
  const auto hold = report_.hold.lock();
  if (hold && !hold->may_answer_poll(report_.description)) {
    return false;
  }
  {
    const std::lock_guard lock(pending_mutex_);
    if (!ready_) {
      return false;
    }
  }
  deliver();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> PendingWork::getFuture() {
  bool already_ready = false;
  {
    const std::lock_guard lock(pending_mutex_);
    if (future_ == nullptr) {
      future_ =
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
      already_ready = ready_ && !delivered_;
      if (delivered_) {
        complete(*future_);
      }
    }
  }
  if (already_ready && !deferred()) {
    deliver();  // the queue has already finished with it, and will not deliver it
  }
  return future_;
}

bool PendingWork::deferred() {
  const auto self = c10::intrusive_ptr<PendingWork>::unsafe_reclaim_from_nonowning(this);
  const auto hold = report_.hold.lock();
  return hold && hold->defer(report_.description, [self] { self->deliver_when_caller_sleeps(); });
}

void PendingWork::complete(c10::ivalue::Future& future) const {
  if (error_) {
    future.setError(error_);
  } else {
    future.markCompleted(c10::IValue(operation_.outputs));
  }
}

bool PendingWork::in_flight() const {
  const std::lock_guard lock(pending_mutex_);
  return !delivered_;
}

std::optional<std::string> PendingWork::forbids(const at::Tensor& tensor, bool writes) const {
  if (!in_flight()) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < operation_.inputs.size(); ++i) {
    if (writes && overlap(tensor, operation_.inputs[i])) {
      return report_.names[i];
    }
  }
  for (std::size_t i = 0; i < operation_.outputs.size(); ++i) {
    if (overlap(tensor, operation_.outputs[i])) {
      return report_.names[operation_.inputs.size() + i];
    }
  }
  return std::nullopt;
}

bool PendingWork::first_access(bool writes) {
  const std::lock_guard lock(pending_mutex_);
  return !std::exchange(accessed_[writes ? 1 : 0], true);
}

void PendingWork::deliver() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(pending_mutex_);
    if (delivered_) {
      return;
    }
    const OwnAccess own;
    check_untouched();
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      operation_.outputs[i].variable_data().copy_(outputs_[i]);
    }
    delivered_ = true;
    future = future_;  // later calls of getFuture() complete theirs themselves
  }
  finish(error_);
  if (future != nullptr) {
    complete(*future);
  }
}

void PendingWork::deliver_when_caller_sleeps() {
  const auto patience = std::chrono::steady_clock::now() + kPollingPatience;
  while (in_flight() && !is_asleep(caller_) && std::chrono::steady_clock::now() < patience) {
  }
  deliver();
}

void PendingWork::check_untouched() {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const bool is_output_too = std::any_of(
        operation_.outputs.begin(), operation_.outputs.end(),
        [&](const at::Tensor& output) { return overlap(operation_.inputs[i], output); });
    if (is_output_too) {
      continue;  // for example an all-gather from a part of its own output: poisoned, checked below
    }
    if (std::memcmp(operation_.inputs[i].const_data_ptr(), inputs_[i].const_data_ptr(),
                    inputs_[i].nbytes()) != 0) {
      report_.races->add(report_.names[i] +
                         " was written while it was in flight, between the launch of " +
                         report_.description + " and the wait for it");
    }
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (const auto element = first_unpoisoned(operation_.outputs[i], report_.number)) {
      report_.races->add(report_.names[inputs_.size() + i] + " was written (element " +
                         std::to_string(*element) +
                         ") while it was in flight, between the launch of " + report_.description +
                         " and the wait for it");
    }
  }
}

}  // namespace ddp
