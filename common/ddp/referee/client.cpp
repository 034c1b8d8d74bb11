#include "ddp/referee/client.h"

#include <algorithm>
#include <iterator>

#include "ddp/backends/tensor_names.h"
#include "ddp/referee/access_watch.h"
#include "ddp/referee/standstill.h"

namespace ddp {

namespace {

// Whether a later operation ends may hang on what an earlier one's callbacks do.
constexpr auto kOrderPatience = std::chrono::milliseconds(1'000);

}  // namespace

void Client::look_at_buffers() {
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
  give_way(launches_);
  const OwnAccess own;
  std::vector<std::string> names;
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      names.push_back(names_.of(tensor));
    }
  }
  launch.operation = launches_++;
  TORCH_CHECK(launch.operation < Mailbox::kOperations, "rank ", rank(), " launched more than ",
              Mailbox::kOperations, " operations in one run");
  launch.text = names.empty() ? "" : names[0];
  note_start(operation, launch);
  const bool fails = fails_now();
  TORCH_CHECK(!fails || !world().failure->at_launch, kConnectionLost);
  if (launch.type == c10d::OpType::SEND) {
    chooses(Choice::kSend, launch.operation, "it was complete before its recv was launched");
  }
  launch = Witness::launch(launch, [&](char* bytes) {
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
        in_flight_at_.emplace(begin, std::pair(end, work.get()));
      }
    }
  }
}

void Client::forget(const ClientWork& work) {
  release();
  const std::lock_guard lock(flight_mutex_);
  std::erase_if(in_flight_at_, [&](const auto& range) { return range.second.second == &work; });
  std::erase_if(in_flight_, [&](const auto& other) { return other.get() == &work; });
}

void Client::deliver_later(std::int64_t operation, const QueueKey& key) {
  const std::lock_guard lock(flight_mutex_);
  deliveries_[key].submit([this, operation, key] { deliver(operation, key); });
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
void Client::deliver(std::int64_t operation, const QueueKey& key) {
  if (const auto work = in_flight(operation)) {
    work->await_its_turn();
  }
  const auto work = in_flight(operation);
  if (!work) {
    return;
  }
  const auto last = last_with_future(key);
  // Messages keep their order: who sends what a later one brings may wait for an earlier one.
  if (last != work && last != nullptr && !c10d::isP2POp(work->operation().type) &&
      chooses(Choice::kOrder, operation,
              "the future of a later operation completed before its own") &&
      await(last->number(), kOrderPatience) != Answer::kNone) {
    last->deliver_to_future();
    return deliver_later(operation, key);
  }
  work->deliver_to_future();
}

c10::intrusive_ptr<ClientWork> Client::in_flight(std::int64_t operation) const {
  const std::lock_guard lock(flight_mutex_);
  const auto found = std::ranges::find(in_flight_, operation, &ClientWork::number);
  return found == in_flight_.end() ? nullptr : *found;
}

c10::intrusive_ptr<ClientWork> Client::last_with_future(const QueueKey& key) const {
  WorkList works;
  {
    const std::lock_guard lock(flight_mutex_);
    works = in_flight_;
  }
  c10::intrusive_ptr<ClientWork> last;
  for (const auto& work : works) {
    last = queue_key(work->operation()) == key && work->has_future() ? work : last;
  }
  return last;
}

Client::WorkList Client::in_flight_at(const at::Tensor& tensor) const {
  const auto [begin, end] = extent_of(tensor);
  const std::lock_guard lock(flight_mutex_);
  WorkList found;
  // Buffers in flight do not overlap, so only the one before `begin` can reach into the tensor.
  auto range = in_flight_at_.upper_bound(begin);
  range = range == in_flight_at_.begin() ? range : std::prev(range);
  for (; range != in_flight_at_.end() && range->first < end; ++range) {
    const auto& [range_end, work] = range->second;
    if (range_end > begin) {
      found.push_back(c10::intrusive_ptr<ClientWork>::unsafe_reclaim_from_nonowning(work));
    }
  }
  return found;
}

}  // namespace ddp
