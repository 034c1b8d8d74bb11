#include "ddp/cluster/cluster.h"

#include <chrono>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "ddp/cluster/meta_memory.h"
#include "ddp/cluster/operators.h"
#include "ddp/ranks/exceptions.h"
#include "ddp/ranks/rank_output.h"
#include "ddp/referee/standstill.h"

namespace ddp::cluster {

namespace {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// Between two looks at a thread. If they are equal, it has slept all the while.
constexpr std::chrono::microseconds kBetweenLooks{20};

}  // namespace

// Shared with the thread that completes: what a callback drops last may be the owner of all this.
struct Futures::State {
  struct Pending {
    FuturePtr future;
    c10::IValue result;
  };

  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  Listener listener;
  std::multimap<std::int64_t, Pending> pending;  // by end

  // Completes the first, unless that ends later.
  bool complete_first(std::int64_t latest_ns, bool tells) {
    std::unique_lock lock(mutex);
    if (pending.empty() || pending.begin()->first > latest_ns) {
      return false;
    }
    const auto [end_ns, first] = *pending.begin();
    pending.erase(pending.begin());
    if (tells && listener) {
      listener(end_ns);
    }
    lock.unlock();  // callbacks may make futures
    first.future->markCompleted(first.result);
    return true;
  }
};

Futures::Futures(Listener listener)
    : state_(std::make_shared<State>()), sleeper_(this_thread_id()) {
  state_->listener = std::move(listener);
}

Futures::~Futures() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
    state_->listener = nullptr;
    state_->changed.notify_all();
  }
  if (server_.get_id() == std::this_thread::get_id()) {
    server_.detach();  // a callback dropped the last owner: its thread cannot wait for itself
  } else if (server_.joinable()) {
    server_.join();
  }
}

FuturePtr Futures::make(const std::vector<at::Tensor>& result, std::int64_t end_ns) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  const std::lock_guard lock(state_->mutex);
  state_->pending.emplace(end_ns, State::Pending{future, result});
  state_->changed.notify_all();
  if (!server_.joinable()) {
    server_ = std::thread(serve, state_, sleeper_);
  }
  return future;
}

void Futures::complete_until(std::int64_t end_ns) {
  while (state_->complete_first(end_ns, /*tells=*/false)) {
  }
}

void Futures::serve(const std::shared_ptr<State>& state, int sleeper) {
  while (true) {
    {
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return state->ended || !state->pending.empty(); });
      if (state->ended) {
        return;
      }
    }
    const ThreadSleep look = look_at_thread(sleeper);
    std::this_thread::sleep_for(kBetweenLooks);
    if (look.asleep && look == look_at_thread(sleeper)) {
      state->complete_first(std::numeric_limits<std::int64_t>::max(), /*tells=*/true);
    }
  }
}

namespace {

using BackendHandle = c10::intrusive_ptr<ClusterBackend>;

class CollectiveWork : public c10d::Work {
 public:
  CollectiveWork(BackendHandle backend, std::vector<at::Tensor> tensors, std::int64_t end)
      : backend_(std::move(backend)), tensors_(std::move(tensors)), end_(end) {}

  bool wait(std::chrono::milliseconds) override {
    if (backend_->is_home()) {
      backend_->wait_until(end_);
    } else {
      getFuture()->wait();
    }
    return true;
  }
  bool isCompleted() override {
    if (!backend_->is_home()) {
      return getFuture()->completed();
    }
    backend_->poll_until(end_);
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override { return tensors_; }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const std::lock_guard lock(mutex_);
    if (!future_) {
      future_ = backend_->make_future(tensors_, end_);
    }
    return future_;
  }

 private:
  const BackendHandle backend_;
  const std::vector<at::Tensor> tensors_;
  const std::int64_t end_;
  std::mutex mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// As Gloo's, a message has no future.
class MessageWork : public c10d::Work {
 public:
  MessageWork(BackendHandle backend, Operation operation, MessageEndPtr end)
      : backend_(std::move(backend)), operation_(std::move(operation)), end_(std::move(end)) {}

  bool wait(std::chrono::milliseconds) override {
    backend_->wait_for(operation_, end_);
    return true;
  }
  bool isCompleted() override { return wait(kNoTimeout); }
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override { return operation_.outputs; }

 private:
  const BackendHandle backend_;
  const Operation operation_;
  const MessageEndPtr end_;
};

// Gathered are parameters, reduced gradients, in all ways of data-parallel training.
void tell_kinds(const Operation& operation) {
  using c10d::OpType;
  const bool gathers =
      operation.type == OpType::ALLGATHER || operation.type == OpType::_ALLGATHER_BASE;
  const bool reduces = operation.type == OpType::ALLREDUCE ||
                       operation.type == OpType::REDUCE_SCATTER ||
                       operation.type == OpType::_REDUCE_SCATTER_BASE;
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (gathers || reduces) {
        tell_kind(tensor, gathers ? MemoryKind::kParameters : MemoryKind::kGradients);
      }
    }
  }
}

}  // namespace

ClusterBackend::ClusterBackend(const ClusterOptions& options)
    : OperationBackend(/*rank=*/0, static_cast<int>(options.world_size)),
      options_(options),
      home_(std::this_thread::get_id()),
      clocks_({.launch_ns = options.device.launch_ns,
               .collective_launch_ns = options.collective_launch_ns,
               .wait_blocks_host = options.wait_blocks_host,
               .slowdown_beside_communication = options.slowdown_beside_communication,
               .kernel_ns_beside_communication = options.kernel_ns_beside_communication,
               .slowdown_beside_computing = options.slowdown_beside_computing,
               .launch_queue = options.launch_queue}),
      messages_({.rank = getRank(),
                 .world_size = getSize(),
                 .cost_ns =
                     [this](std::int64_t bytes) {
                       return cost_ns(options_.topology, c10d::OpType::SEND, bytes,
                                      options_.world_size);
                     },
                 .others_in_step = options.others_in_step}),
      futures_([this](std::int64_t end) {
        const std::lock_guard lock(mutex_);
        clocks_.wait_until(end);
      }) {}

void ClusterBackend::begin_step() {
  futures_.complete_until(std::numeric_limits<std::int64_t>::max());  // nobody asked for these
  const std::lock_guard lock(mutex_);
  clocks_.reset();
  messages_.reset();
  spans_.clear();
}

WorkPtr ClusterBackend::run(Operation operation) {
  const std::string name = operation_name(operation.type);
  check_home(name);
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      TORCH_CHECK(tensor.is_meta(),
                  "the simulated cluster has times, no values, so it cannot do an ", name,
                  " of a tensor on ", tensor.device(),
                  "; make such tensors on the device of the parameters");
    }
  }
  const std::lock_guard lock(mutex_);
  return operation.is_message() ? run_message(operation) : run_collective(operation);
}

WorkPtr ClusterBackend::run_collective(const Operation& operation) {
  tell_kinds(operation);
  const std::int64_t ready = clocks_.launch();
  const Interval time = clocks_.communicate(
      ready,
      cost_ns(options_.topology, operation.type, operation.payload_bytes(), options_.world_size));
  draw(operation, ready, time);
  return c10::make_intrusive<CollectiveWork>(BackendHandle::reclaim_copy(this), operation.outputs,
                                             time.end);
}

WorkPtr ClusterBackend::run_message(const Operation& operation) {
  MessageEndPtr end = messages_.launch({.sends = operation.type == c10d::OpType::SEND,
                                        .peer = operation.peer,
                                        .tag = operation.tag,
                                        .bytes = operation.payload_bytes(),
                                        .launched_ns = clocks_.launch()});
  return c10::make_intrusive<MessageWork>(BackendHandle::reclaim_copy(this), operation,
                                          std::move(end));
}

void ClusterBackend::draw(const Operation& operation, std::int64_t launched, const Interval& time) {
  const auto& tensors = operation.inputs.empty() ? operation.outputs : operation.inputs;
  spans_.push_back(
      {.kind = SpanKind::kCommunication,
       .name = operation_name(operation.type) +
               (tensors.empty() ? "" : " of a tensor " + describe_tensor(tensors.front())),
       .begin_ns = time.begin,
       .end_ns = time.end,
       .launched_ns = launched,
       .bytes = operation.payload_bytes()});
}

void ClusterBackend::compute(const DataMovement& movement) {
  compute(operator_ns(options_.device, 0, static_cast<double>(movement.bytes)), movement.name);
}

void ClusterBackend::compute(std::int64_t ns, const std::string& name, const HostWork& host) {
  const std::lock_guard lock(mutex_);
  const Interval time = clocks_.compute(ns, host);
  spans_.push_back({.name = name, .begin_ns = time.begin, .end_ns = time.end});
}

void ClusterBackend::wait_until(std::int64_t end) {
  {
    const std::lock_guard lock(mutex_);
    clocks_.wait_until(end);
  }
  futures_.complete_until(end);
}

void ClusterBackend::poll_until(std::int64_t end) {
  {
    const std::lock_guard lock(mutex_);
    clocks_.poll_until(end);
  }
  futures_.complete_until(end);
}

void ClusterBackend::wait_for(const Operation& operation, const MessageEndPtr& end) {
  check_home("wait for a message");
  const std::lock_guard lock(mutex_);
  messages_.await(end);
  clocks_.wait_until(end->end_ns);
  draw(operation, end->launched_ns, {end->begin_ns, end->end_ns});
}

Clocks ClusterBackend::clocks() const {
  const std::lock_guard lock(mutex_);
  return clocks_;
}

void ClusterBackend::check_home(const std::string& what) const {
  TORCH_CHECK(is_home(), "the simulated cluster follows the thread that trains, and not another's ",
              what);
}

namespace {

ClusterOptions checked(const ClusterOptions& options) {
  TORCH_CHECK_VALUE(options.world_size > 0, "a cluster needs at least one rank, not ",
                    options.world_size);
  TORCH_CHECK_VALUE(options.slowdown_beside_communication >= 1, "slowdown_beside_communication is ",
                    options.slowdown_beside_communication,
                    ", but communication does not make computing faster: give 1 or more");
  TORCH_CHECK_VALUE(options.kernel_ns_beside_communication >= 0,
                    "kernel_ns_beside_communication is ", options.kernel_ns_beside_communication,
                    ", but communication does not make kernels faster: give 0 or more");
  TORCH_CHECK_VALUE(options.slowdown_beside_computing >= 1, "slowdown_beside_computing is ",
                    options.slowdown_beside_computing,
                    ", but computing does not make communication faster: give 1 or more");
  check(options.device);
  check(options.topology);
  return options;
}

ProcessGroupPtr make_group(const BackendPtr& backend) {
  allow_meta_collectives();
  ProcessGroupPtr group = make_process_group(backend);
  group->setBackend(c10::kMeta, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return group;
}

// The innermost one that has a line; libtorch's own headers are inlined with none.
std::string place_of_last_throw() {
  for (const std::string& place : name_places(last_throw())) {
    if (place.find(".cpp:") != std::string::npos || place.find(".h:") != std::string::npos) {
      return place;
    }
  }
  return "";
}

}  // namespace

Cluster::Cluster(const ClusterOptions& options)
    : options_(checked(options)),
      backend_(c10::make_intrusive<ClusterBackend>(options_)),
      group_(make_group(backend_)) {
  remember_throws();
}

void Cluster::run(const std::function<void()>& code) {
  const OperatorWatch watch([this](const DataMovement& movement) { backend_->compute(movement); });
  try {
    code();
  } catch (c10::Error& error) {
    const std::string place = is_stub_error(error) ? "" : place_of_last_throw();
    if (place.empty()) {
      throw;
    }
    TORCH_CHECK(!is_memory_error(error), "data_ptr(): ", kNoValues, " (", place, ")");
    error.add_context(place);
    throw;
  }
}

std::int64_t Cluster::time(const std::function<void()>& code) {
  begin_step();
  run(code);
  return clocks().now();
}

}  // namespace ddp::cluster
