#include "ddp/cluster/cluster_backend.h"

#include <algorithm>
#include <utility>

namespace ddp::cluster {

namespace {

using BackendHandle = c10::intrusive_ptr<ClusterBackend>;

// What a collective and a message have in common: nothing ever fails, and the tensors are there.
class ClusterWork : public c10d::Work {
 public:
  ClusterWork(BackendHandle backend, std::vector<at::Tensor> tensors)
      : backend_(std::move(backend)), tensors_(std::move(tensors)) {}

  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override { return tensors_; }
  void abort() override {}

  // Complete from the start: nobody sees when a future is waited for, see ClusterBackend::compute().
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(tensors_));
    return future;
  }

 protected:
  ClusterBackend& backend() { return *backend_; }

 private:
  BackendHandle backend_;
  std::vector<at::Tensor> tensors_;
};

class CollectiveWork : public ClusterWork {
 public:
  CollectiveWork(BackendHandle backend, std::vector<at::Tensor> tensors, std::int64_t end)
      : ClusterWork(std::move(backend), std::move(tensors)), end_(end) {}

  bool wait(std::chrono::milliseconds) override {
    backend().wait_until(end_);
    return true;
  }
  bool isCompleted() override {
    backend().poll_until(end_);
    return true;
  }

 private:
  std::int64_t end_;
};

class MessageWork : public ClusterWork {
 public:
  MessageWork(BackendHandle backend, Operation operation, MessageEndPtr end)
      : ClusterWork(std::move(backend), operation.outputs),
        operation_(std::move(operation)),
        end_(std::move(end)) {}

  bool wait(std::chrono::milliseconds) override {
    backend().wait_for(operation_, end_);
    return true;
  }
  bool isCompleted() override { return wait(kNoTimeout); }

 private:
  Operation operation_;
  MessageEndPtr end_;
};

// The bytes from a tensor's first element to the end of its last, within its storage.
std::pair<std::int64_t, std::int64_t> place_of(const at::Tensor& tensor) {
  std::int64_t last = tensor.storage_offset();
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return {tensor.storage_offset() * tensor.element_size(), (last + 1) * tensor.element_size()};
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_alias_of(b) || a.numel() == 0 || b.numel() == 0) {
    return false;
  }
  const auto [a_begin, a_end] = place_of(a);
  const auto [b_begin, b_end] = place_of(b);
  return a_begin < b_end && b_begin < a_end;
}

}  // namespace

ClusterBackend::ClusterBackend(const ClusterOptions& options)
    : OperationBackend(/*rank=*/0, static_cast<int>(options.world_size)),
      options_(options),
      clocks_({.launch_ns = options.device.launch_ns,
               .wait_blocks_host = options.wait_blocks_host,
               .slowdown_beside_communication = options.slowdown_beside_communication}),
      messages_({.rank = getRank(),
                 .world_size = getSize(),
                 .cost_ns =
                     [this](std::int64_t bytes) {
                       return cost_ns(options_.topology, c10d::OpType::SEND, bytes,
                                      options_.world_size);
                     },
                 .others_in_step = options.others_in_step}) {}

void ClusterBackend::begin_step() {
  clocks_.reset();
  messages_.reset();
  in_flight_.clear();
  spans_.clear();
}

WorkPtr ClusterBackend::run(Operation operation) {
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      TORCH_CHECK(tensor.is_meta(),
                  "the simulated cluster has times, no values, so it cannot do an ",
                  operation_name(operation.type), " of a tensor on ", tensor.device(),
                  "; make such tensors on the device of the parameters");
    }
  }
  return operation.is_message() ? run_message(operation) : run_collective(operation);
}

WorkPtr ClusterBackend::run_collective(const Operation& operation) {
  const std::int64_t ready = clocks_.launch();
  const Interval time = clocks_.communicate(
      ready,
      cost_ns(options_.topology, operation.type, operation.payload_bytes(), options_.world_size));
  draw(operation, ready, time);
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      in_flight_.push_back({tensor, time.end});
    }
  }
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
  std::int64_t end = 0;
  for (const InFlight& other : in_flight_) {
    const bool touched = std::ranges::any_of(movement.touched, [&](const at::Tensor& tensor) {
      return share_memory(other.tensor, tensor);
    });
    end = touched ? std::max(end, other.end_ns) : end;
  }
  if (end > 0) {
    wait_until(end);
  }
  compute(operator_ns(options_.device, 0, static_cast<double>(movement.bytes)), movement.name);
}

void ClusterBackend::compute(std::int64_t ns, const std::string& name) {
  const Interval time = clocks_.compute(ns);
  spans_.push_back({.name = name, .begin_ns = time.begin, .end_ns = time.end});
}

// Collectives end in their order.
void ClusterBackend::wait_until(std::int64_t end) {
  clocks_.wait_until(end);
  std::erase_if(in_flight_, [end](const InFlight& other) { return other.end_ns <= end; });
}

void ClusterBackend::poll_until(std::int64_t end) {
  clocks_.poll_until(end);
  wait_until(end);
}

void ClusterBackend::wait_for(const Operation& operation, const MessageEndPtr& end) {
  messages_.await(end);
  clocks_.wait_until(end->end_ns);
  draw(operation, end->launched_ns, {end->begin_ns, end->end_ns});
}

}  // namespace ddp::cluster
