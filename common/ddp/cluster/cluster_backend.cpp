#include "ddp/cluster/cluster_backend.h"

#include <limits>
#include <utility>

#include "ddp/cluster/meta_memory.h"

namespace ddp::cluster {

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

}  // namespace ddp::cluster
