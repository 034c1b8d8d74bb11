#include "ddp/referee/client_work.h"

#include <algorithm>
#include <utility>

#include "ddp/backends/tensor_names.h"
#include "ddp/ranks/exceptions.h"
#include "ddp/referee/access_watch.h"
#include "ddp/referee/standstill.h"
#include "ddp/storage.h"

namespace ddp {

namespace {

// In a slow world every operation takes this long, as one rank may be saving a checkpoint.
constexpr auto kSlow = std::chrono::minutes(10);
// More polls are not told: they tell nothing new.
constexpr int kPollsTold = 100;
// In a slow world so many polls are a wait.
constexpr int kPollsOfAWait = 2'000;
// From which poll on, outside backward, the referee is asked whether an operation is complete: as
// usual, and in the other order.
constexpr int kAskingPoll = 2;
constexpr int kLateAskingPoll = 5;
// What the operation needs may itself come after the poll: then it is not complete.
constexpr auto kPollPatience = std::chrono::milliseconds(500);
// How many bytes of a buffer are looked at between launch and delivery.
constexpr std::size_t kGlance = 64;

// Only host memory is poisoned and looked at.
bool can_be_watched(const Operation& operation) {
  const auto on_host = [](const at::Tensor& tensor) { return tensor.is_cpu(); };
  return std::ranges::all_of(operation.inputs, on_host) &&
         std::ranges::all_of(operation.outputs, on_host);
}

}  // namespace

ClientWork::ClientWork(std::shared_ptr<WorkOwner> owner, Operation operation, const Event& launch,
                       std::vector<std::string> names, bool fails)
    : Work(-1, operation.type),
      owner_(std::move(owner)),
      operation_(std::move(operation)),
      launch_(launch),
      names_(std::move(names)),
      caller_(this_thread_id()),
      watched_(can_be_watched(operation_)),
      fails_(fails) {
  owner_->count_handles(+1);
  for (const at::Tensor& input : operation_.inputs) {
    if (watched_ && !operation_.in_place && !operation_.outputs.empty()) {
      const auto* bytes = static_cast<const char*>(input.const_data_ptr());
      sent_.insert(sent_.end(), bytes, bytes + input.nbytes());
    }
  }
  for (const at::Tensor& output : operation_.outputs) {
    if (watched_) {
      poison(output.variable_data(), number());
    }
  }
}

ClientWork::~ClientWork() { owner_->count_handles(-1); }

bool ClientWork::wait(std::chrono::milliseconds timeout) {
  owner_->witness().say(EventKind::kWait, number());
  TORCH_CHECK(!owner_->witness().world().slow || timeout == kNoTimeout || timeout >= kSlow,
              description(), " is not complete after ", timeout.count(), " ms");
  deliver(owner_->witness().await(number()), /*to_waiter=*/true);
  owner_->witness().give_way(number());
  if (error_) {
    remember_throw_here();
    std::rethrow_exception(error_);
  }
  return true;
}

bool ClientWork::isCompleted() {
  int polls = 0;
  {
    const std::lock_guard lock(delivery_mutex_);
    if (delivered_) {
      return true;
    }
    polls = ++polls_;
  }
  if (polls <= kPollsTold) {
    owner_->witness().say(EventKind::kPoll, number());
  }
  const Answer answer = answer_to_poll(polls);
  if (answer == Answer::kNone || (owner_->witness().world().slow && polls < kPollsOfAWait)) {
    std::this_thread::yield();  // whoever asks in a loop needs others to go on
    return false;
  }
  deliver(answer, /*to_waiter=*/true);
  return true;
}

// When an operation's answer comes is up to chance. So the body's thread is told by the number of its
// polls alone: nothing at first, and later what there is once other ranks have done their part.
Answer ClientWork::answer_to_poll(int polls) {
  Witness& witness = owner_->witness();
  const Place place = witness.place();
  const bool held = witness.world().hold && place.phase == Phase::kBackward;
  if (witness.world().prompt || witness.world().slow || !witness.is_home()) {
    return witness.answer(number());
  }
  if (held) {
    polls_held_ = std::exchange(ready_at_poll_, place.ready) == place.ready ? polls_held_ + 1 : 1;
    return polls_held_ <= kPollsAllowed ? Answer::kNone : witness.answer(number());
  }
  if (asking_poll_ == 0) {
    const bool late =
        witness.chooses(Choice::kPoll, number(), "more of its polls found it running");
    asking_poll_ = polls - 1 + (late ? kLateAskingPoll : kAskingPoll);
  }
  return polls < asking_poll_    ? Answer::kNone
         : polls == asking_poll_ ? witness.await(number(), kPollPatience)
                                 : witness.answer(number());
}

c10::intrusive_ptr<c10::ivalue::Future> ClientWork::getFuture() {
  owner_->witness().fact(kTookFuture, number());
  const std::lock_guard lock(delivery_mutex_);
  if (future_ == nullptr) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    if (delivered_) {
      complete(future_, /*to_waiter=*/false);
    } else {
      hold_callbacks();
      owner_->deliver_later(number(), queue_key(operation_));
    }
  }
  return future_;
}

// A future wakes its waiters and then runs its callbacks, on the same thread: the first of them lets the
// others wait until the waiter sleeps again.
void ClientWork::hold_callbacks() {
  Witness& witness = owner_->witness();
  if (!c10d::isP2POp(operation_.type) &&
      witness.world().schedule.other(Choice::kCallbacks, witness.rank(), number())) {
    future_->addCallback([&witness, waiter = caller_](c10::ivalue::Future&) {
      witness.await_rest(waiter, [] { return false; });
    });
  }
}

void ClientWork::await_its_turn() {
  owner_->witness().await(number());
  const bool rests = owner_->witness().await_rest(caller_, [this] { return is_delivered(); });
  const std::lock_guard lock(delivery_mutex_);
  caller_rests_ = rests;
}

void ClientWork::deliver_to_future() {
  deliver(owner_->witness().await(number()), /*to_waiter=*/false);
}

std::optional<std::string> ClientWork::forbids(const at::Tensor& tensor, bool writes) const {
  const std::lock_guard lock(delivery_mutex_);
  if (delivered_) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < operation_.inputs.size(); ++i) {
    if (writes && overlap(tensor, operation_.inputs[i])) {
      return names_[i];
    }
  }
  for (std::size_t i = 0; i < operation_.outputs.size(); ++i) {
    if (overlap(tensor, operation_.outputs[i])) {
      return names_[operation_.inputs.size() + i];
    }
  }
  return std::nullopt;
}

bool ClientWork::is_delivered() const {
  const std::lock_guard lock(delivery_mutex_);
  return delivered_;
}

bool ClientWork::has_future() const {
  const std::lock_guard lock(delivery_mutex_);
  return future_ != nullptr;
}

bool ClientWork::first_access(bool writes) {
  const std::lock_guard lock(delivery_mutex_);
  return !std::exchange(accessed_[writes ? 1 : 0], true);
}

void ClientWork::look(bool whole) {
  std::optional<std::string> lost;
  std::optional<std::string> changed;
  {
    const std::lock_guard lock(delivery_mutex_);
    if (watched_ && !delivered_ && !damaged_) {
      lost = lost_buffer();
      changed = lost ? std::nullopt : changed_buffer(whole);
      damaged_ = lost || changed;
    }
  }
  if (lost) {
    owner_->witness().say(EventKind::kTouch, number(), *lost, "its memory was let go");
  } else if (changed) {
    owner_->witness().say(EventKind::kTouch, number(), *changed, "its memory was written");
  }
}

std::optional<std::string> ClientWork::lost_buffer() const {
  std::size_t name = 0;
  for (const auto* tensors : {&operation_.inputs, &operation_.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!has_storage(tensor)) {
        return names_[name];
      }
      ++name;
    }
  }
  return std::nullopt;
}

std::optional<std::string> ClientWork::changed_buffer(bool whole) const {
  const OwnAccess own;
  const char* copy =
      operation_.outputs.empty() ? owner_->witness().bytes_of(launch_) : sent_.data();
  for (std::size_t i = 0; i < operation_.inputs.size() && !operation_.in_place; ++i) {
    const at::Tensor& input = operation_.inputs[i];
    const bool is_output_too = std::ranges::any_of(
        operation_.outputs, [&](const at::Tensor& output) { return overlap(input, output); });
    const std::size_t bytes =
        whole ? input.nbytes() : std::min<std::size_t>(input.nbytes(), kGlance);
    // An all-gather may be from a part of its own output, which is poisoned and checked below.
    const auto* now = static_cast<const char*>(input.const_data_ptr());
    if (!is_output_too && !std::equal(now, now + bytes, copy)) {
      return names_[i];
    }
    copy += input.nbytes();
  }
  for (std::size_t i = 0; i < operation_.outputs.size(); ++i) {
    const at::Tensor& output = operation_.outputs[i];
    if (first_unpoisoned(output, number(), whole ? output.nbytes() : kGlance)) {
      return names_[operation_.inputs.size() + i];
    }
  }
  return std::nullopt;
}

void ClientWork::deliver(Answer answer, bool to_waiter) {
  std::call_once(delivery_, [&] {
    look(/*whole=*/true);
    if (answer == Answer::kGone) {
      error_ = std::make_exception_ptr(PeerGone(owner_->witness().refusal()));
    } else if (answer == Answer::kRefused || fails_) {
      error_ = std::make_exception_ptr(c10::Error(
          {"deliver", __FILE__, __LINE__}, fails_ ? kConnectionLost : owner_->witness().refusal()));
    }
    c10::intrusive_ptr<c10::ivalue::Future> future;
    bool awaited = false;
    {
      const std::lock_guard lock(delivery_mutex_);
      if (!error_) {
        copy_out();
      }
      if (c10d::isP2POp(operation_.type)) {
        operation_.inputs.clear();
        operation_.outputs.clear();
      }
      delivered_ = true;
      awaited = !to_waiter && caller_rests_;
      future = future_;  // later calls of getFuture() complete theirs themselves
    }
    owner_->witness().say(EventKind::kDone, number(), awaited ? kAwaitedByFuture : "");
    owner_->forget(*this);
    finish(error_);
    if (future != nullptr) {
      complete(future, to_waiter);
    }
  });
}

void ClientWork::copy_out() {
  const OwnAccess own;
  char* result = owner_->witness().bytes_of(launch_);
  for (const at::Tensor& output : operation_.outputs) {
    if (has_storage(output)) {
      copy_from_host(result, output);
    }
    result += output.nbytes();
  }
}

void ClientWork::complete(const c10::intrusive_ptr<c10::ivalue::Future>& future, bool to_waiter) {
  const auto complete = [future, outputs = operation_.outputs, error = error_] {
    if (error) {
      future->setError(error);
    } else {
      future->markCompleted(c10::IValue(outputs));
    }
  };
  // Messages' lines may hold an operation that needs what these callbacks send.
  const bool late =
      !c10d::isP2POp(operation_.type) &&
      owner_->witness().chooses(Choice::kCallbacks, number(),
                                "its waiter went on before the callbacks of its future ran");
  if (late && to_waiter) {
    owner_->complete_later(queue_key(operation_), complete);
  } else {
    complete();
  }
}

}  // namespace ddp
