#include "ddp/referee/client.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "ddp/backends/operation_backend.h"
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
// From this poll on, outside backward, the referee is asked whether an operation is complete.
constexpr int kAskingPoll = 2;
// How many bytes of a buffer are looked at between launch and delivery.
constexpr std::size_t kGlance = 64;

// Only host memory is poisoned and looked at.
bool can_be_watched(const Operation& operation) {
  const auto on_host = [](const at::Tensor& tensor) { return tensor.is_cpu(); };
  return std::ranges::all_of(operation.inputs, on_host) &&
         std::ranges::all_of(operation.outputs, on_host);
}

}  // namespace

// The handle of an operation in a refereed world. The result is delivered to the caller's tensors by
// wait(), by a poll that returns true, or, where a future was taken, once the launching thread is
// asleep: so what uses it too early does so in every run. A message's handle then lets go of its
// tensor, and its future has no value.
class ClientWork final : public c10d::Work {
 public:
  // Poisons the outputs; the inputs have been copied. If it `fails`, there is no result.
  ClientWork(std::shared_ptr<Client> client, Operation operation, const Event& launch,
             std::vector<std::string> names, bool fails);
  ClientWork(const ClientWork&) = delete;
  ClientWork& operator=(const ClientWork&) = delete;
  ~ClientWork() override;

  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;
  void synchronize() override {}
  std::vector<at::Tensor> result() override { return operation_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  const Operation& operation() const { return operation_; }
  std::int64_t number() const { return launch_.operation; }
  std::string description() const { return describe_operation(launch_); }

  // The name of the buffer that `tensor` overlaps and that nobody may write (or read, if not
  // `writes`) now; none if the access is allowed.
  std::optional<std::string> forbids(const at::Tensor& tensor, bool writes) const;
  // True on the first call for each kind of access.
  bool first_access(bool writes);
  // Tells, once, that somebody has written the beginning of a buffer in flight.
  void look() { look(/*whole=*/false); }
  // Waits for the answer, and until the launching thread sleeps.
  void await_its_turn();
  // Waits for the answer, and completes the future.
  void deliver_to_future();

 private:
  bool is_delivered() const;
  void look(bool whole);
  // The name of a buffer whose memory somebody has let go; none if there is none.
  std::optional<std::string> lost_buffer() const;
  // The name of a buffer that somebody has written; none if there is none.
  std::optional<std::string> changed_buffer(bool whole) const;
  Answer answer_to_poll();
  void hold_callbacks();
  void deliver(Answer answer, bool to_waiter);
  void copy_out();
  void complete(const c10::intrusive_ptr<c10::ivalue::Future>& future, bool to_waiter);

  const std::shared_ptr<Client> client_;
  Operation operation_;
  const Event launch_;
  const std::vector<std::string> names_;
  const int caller_;  // the launching thread's id
  const bool watched_;
  const bool fails_;
  std::vector<char> sent_;  // the inputs, where the arena gets another tensor's result

  std::once_flag delivery_;
  mutable std::mutex delivery_mutex_;  // guards all below
  bool delivered_ = false;
  bool damaged_ = false;
  bool accessed_[2] = {false, false};  // read, written
  bool caller_rests_ = false;
  int polls_ = 0;

  // Of polls by the scenario's thread, which alone uses them.
  int polls_held_ = 0;
  int polls_free_ = 0;  // outside of backward that is held
  std::int32_t ready_at_poll_ = -1;
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

Client::Client(World world, int rank, Mailbox mailbox)
    : Recorder(std::move(world), rank, mailbox) {}

Client::~Client() = default;

void Client::look_at_buffers() {
  if (is_home()) {
    names_.look_at_gradients();
  }
  WorkList works;
  {
    const std::lock_guard lock(flight_mutex_);
    works = in_flight_;
  }
  for (const auto& work : works) {
    work->look();
  }
}

WorkPtr Client::start(Operation operation, Event launch) {
  const OwnAccess own;
  std::vector<std::string> names;
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      names.push_back(name_of(tensor));
    }
  }
  launch.operation = number_operation();
  TORCH_CHECK(launch.operation < Mailbox::kOperations, "rank ", rank(), " launched more than ",
              Mailbox::kOperations, " operations in one run");
  launch.text = names.empty() ? "" : names[0];
  note_start(operation, launch);
  const bool fails = fails_now();
  TORCH_CHECK(!fails || !world().failure->at_launch, kConnectionLost);
  launch = Recorder::launch(launch, [&](char* bytes) {
    for (const at::Tensor& tensor : operation.in_place ? operation.outputs : operation.inputs) {
      copy_to_host(tensor, bytes);
      bytes += tensor.nbytes();
    }
  });
  auto work = c10::make_intrusive<ClientWork>(shared_from_this(), std::move(operation), launch,
                                              std::move(names), fails);
  remember(work);
  if (world().prompt && !c10d::isP2POp(launch.type)) {
    await(launch.operation);
  }
  return work;
}

bool Client::fails_now() {
  const auto& failure = world().failure;
  const bool fails =
      failure && place().step == failure->step && launches_before_failure_++ == failure->operation;
  has_failed_ = has_failed_ || fails;
  return fails;
}

void Client::note_start(const Operation& operation, const Event& launch) {
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      for (const auto& work : in_flight_at(tensor)) {
        if (const auto name = work->forbids(tensor, tensors == &operation.outputs)) {
          say(EventKind::kTouch, work->number(), *name,
              describe_operation(launch) + " was launched on it");
        }
      }
    }
  }
}

void Client::note_access(const at::Tensor& tensor, bool writes, const char* operator_name) {
  for (const auto& work : in_flight_at(tensor)) {
    const auto name = work->forbids(tensor, writes);
    // The outermost operator only; the operators that it calls follow.
    if (name && work->first_access(writes)) {
      say(EventKind::kTouch, work->number(), *name,
          std::string("it was ") + (writes ? "written" : "read") + " by " + operator_name);
    }
  }
}

void Client::remember(const c10::intrusive_ptr<ClientWork>& work) {
  const std::lock_guard lock(flight_mutex_);
  in_flight_.push_back(work);
  for (const auto* tensors : {&work->operation().inputs, &work->operation().outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (const auto [begin, end] = extent_of(tensor); begin < end) {
        longest_in_flight_ = std::max(longest_in_flight_, end - begin);
        in_flight_at_.emplace(begin, std::pair(end, work.get()));
      }
    }
  }
}

// As if it were the buffer of an operation, which no rank has launched: on a tensor of its own.
void Client::touch_on_purpose() {
  float element = 0;
  Operation operation;
  operation.outputs = {at::from_blob(&element, {1}, at::kFloat)};
  Event launch{{.kind = EventKind::kLaunch}};
  const at::Tensor touched = operation.outputs[0];
  const auto work = c10::make_intrusive<ClientWork>(shared_from_this(), std::move(operation),
                                                    launch, std::vector<std::string>{""}, false);
  remember(work);
  touched.zero_();
  forget(*work);
}

std::string Client::describe_in_flight() const {
  constexpr std::size_t kShown = 3;
  const std::lock_guard lock(flight_mutex_);
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, in_flight_.size()); ++i) {
    text += (i == 0 ? ": " : ", ") + in_flight_[i]->description();
  }
  const std::size_t more = in_flight_.size() - std::min(kShown, in_flight_.size());
  return text + (more > 0 ? " and " + std::to_string(more) + " more" : "") +
         (text.empty() ? "" : "; wait for each operation");
}

void Client::forget(const ClientWork& work) {
  const std::lock_guard lock(flight_mutex_);
  std::erase_if(in_flight_at_, [&](const auto& range) { return range.second.second == &work; });
  std::erase_if(in_flight_, [&](const auto& other) { return other.get() == &work; });
}

void Client::deliver_later(std::int64_t operation, const QueueKey& key) {
  const std::lock_guard lock(flight_mutex_);
  deliveries_[key].submit([this, operation] { deliver(operation); });
}

void Client::complete_later(const QueueKey& key, std::function<void()> complete) {
  const std::lock_guard lock(flight_mutex_);
  deliveries_[key].submit([this, complete = std::move(complete), waiter = this_thread_id()] {
    await_rest(waiter, [] { return false; });
    complete();
  });
}

void Client::settle() {
  std::vector<WorkerQueue*> queues;
  {
    const std::lock_guard lock(flight_mutex_);
    for (auto& [key, queue] : deliveries_) {
      queues.push_back(&queue);
    }
  }
  for (WorkerQueue* queue : queues) {
    queue->drain();
  }
}

// The queue does not keep handles alive: it may be far behind whoever waits for them, too.
void Client::deliver(std::int64_t operation) {
  if (const auto work = in_flight(operation)) {
    work->await_its_turn();
  }
  if (const auto work = in_flight(operation)) {
    work->deliver_to_future();
  }
}

c10::intrusive_ptr<ClientWork> Client::in_flight(std::int64_t operation) const {
  const std::lock_guard lock(flight_mutex_);
  const auto found = std::ranges::find(in_flight_, operation, &ClientWork::number);
  return found == in_flight_.end() ? nullptr : *found;
}

Client::WorkList Client::in_flight_at(const at::Tensor& tensor) const {
  const auto [begin, end] = extent_of(tensor);
  const std::lock_guard lock(flight_mutex_);
  WorkList found;
  auto range = in_flight_at_.lower_bound(begin - std::min(begin, longest_in_flight_));
  for (; range != in_flight_at_.end() && range->first < end; ++range) {
    const auto& [range_end, work] = range->second;
    if (range_end > begin) {
      found.push_back(c10::intrusive_ptr<ClientWork>::unsafe_reclaim_from_nonowning(work));
    }
  }
  return found;
}

ClientWork::ClientWork(std::shared_ptr<Client> client, Operation operation, const Event& launch,
                       std::vector<std::string> names, bool fails)
    : Work(-1, operation.type),
      client_(std::move(client)),
      operation_(std::move(operation)),
      launch_(launch),
      names_(std::move(names)),
      caller_(this_thread_id()),
      watched_(can_be_watched(operation_)),
      fails_(fails) {
  ++client_->live_handles_;
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

ClientWork::~ClientWork() { --client_->live_handles_; }

bool ClientWork::wait(std::chrono::milliseconds timeout) {
  client_->say(EventKind::kWait, number());
  TORCH_CHECK(!client_->world().slow || timeout == kNoTimeout || timeout >= kSlow, description(),
              " is not complete after ", timeout.count(), " ms");
  deliver(client_->await(number()), /*to_waiter=*/true);
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
    client_->say(EventKind::kPoll, number());
  }
  const Answer answer = answer_to_poll();
  if (answer == Answer::kNone || (client_->world().slow && polls < kPollsOfAWait)) {
    std::this_thread::yield();  // whoever asks in a loop needs others to go on
    return false;
  }
  deliver(answer, /*to_waiter=*/true);
  return true;
}

// When an operation's answer comes is up to chance. So the scenario's thread is told by the number of its
// polls alone: nothing at first, and later what there is once other ranks have done their part.
Answer ClientWork::answer_to_poll() {
  Recorder& recorder = *client_;
  const Place place = recorder.place();
  const bool held = recorder.world().hold && place.phase == Phase::kBackward;
  if (recorder.world().prompt || recorder.world().slow || !recorder.is_home()) {
    return recorder.answer(number());
  }
  if (held) {
    polls_held_ = std::exchange(ready_at_poll_, place.ready) == place.ready ? polls_held_ + 1 : 1;
    return polls_held_ <= kPollsAllowed ? Answer::kNone : recorder.answer(number());
  }
  ++polls_free_;
  return polls_free_ < kAskingPoll    ? Answer::kNone
         : polls_free_ == kAskingPoll ? recorder.await_or_standstill(number())
                                      : recorder.answer(number());
}

c10::intrusive_ptr<c10::ivalue::Future> ClientWork::getFuture() {
  client_->fact(kTookFuture, number());
  const std::lock_guard lock(delivery_mutex_);
  if (future_ == nullptr) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    if (delivered_) {
      complete(future_, /*to_waiter=*/false);
    } else {
      hold_callbacks();
      client_->deliver_later(number(), queue_key(operation_));
    }
  }
  return future_;
}

// A future wakes its waiters and then runs its callbacks, on the same thread: the first of them lets the
// others wait until the waiter sleeps again.
void ClientWork::hold_callbacks() {
  Recorder& recorder = *client_;
  if (recorder.world().late_callbacks && !c10d::isP2POp(operation_.type)) {
    future_->addCallback([&recorder, waiter = caller_](c10::ivalue::Future&) {
      recorder.await_rest(waiter, [] { return false; });
    });
  }
}

void ClientWork::await_its_turn() {
  client_->await(number());
  const bool rests = client_->await_rest(caller_, [this] { return is_delivered(); });
  const std::lock_guard lock(delivery_mutex_);
  caller_rests_ = rests;
}

void ClientWork::deliver_to_future() { deliver(client_->await(number()), /*to_waiter=*/false); }

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
    client_->say(EventKind::kTouch, number(), *lost, "its memory was let go");
  } else if (changed) {
    client_->say(EventKind::kTouch, number(), *changed, "its memory was written");
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
  const char* copy = operation_.outputs.empty() ? client_->bytes_of(launch_) : sent_.data();
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
      error_ = std::make_exception_ptr(
          PeerGone("waits in vain for " + description() + ": " + client_->refusal(number())));
    } else if (answer == Answer::kRefused || fails_) {
      error_ = std::make_exception_ptr(c10::Error(
          {"deliver", __FILE__, __LINE__}, fails_ ? kConnectionLost : client_->refusal(number())));
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
    if (awaited) {
      client_->say(EventKind::kAwaited, number());
    }
    client_->say(EventKind::kDone, number());
    client_->release();
    client_->forget(*this);
    finish(error_);
    if (future != nullptr) {
      complete(future, to_waiter);
    }
  });
}

void ClientWork::copy_out() {
  const OwnAccess own;
  char* result = client_->bytes_of(launch_);
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
  if (to_waiter && client_->world().late_callbacks && !c10d::isP2POp(operation_.type)) {
    client_->complete_later(queue_key(operation_), complete);
  } else {
    complete();
  }
}

}  // namespace ddp
