#include "ddp/backends/backend_decorator.h"

#include "ddp/backends/tensor_names.h"
#include "ddp/call_checks.h"

namespace ddp {

namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

// c10d's lists of lists have one entry for each local device. Here a rank has one device.
Tensors only(const std::vector<Tensors>& lists, const char* what) {
  TORCH_CHECK(lists.size() <= 1, "expected one list of ", what, " tensors, not ", lists.size());
  return lists.empty() ? Tensors{} : lists.front();
}

// The inverse of only(): no list at all if this rank has no tensors (a gather's output on a rank
// that is not the root).
std::vector<Tensors> nested(const Tensors& tensors) {
  return tensors.empty() ? std::vector<Tensors>{} : std::vector<Tensors>{tensors};
}

Operation in_place(OpType type, const Tensors& tensors) {
  Operation operation;
  operation.type = type;
  operation.outputs = tensors;
  operation.in_place = true;
  return operation;
}

Operation out_of_place(OpType type, Tensors inputs, Tensors outputs) {
  Operation operation;
  operation.type = type;
  operation.inputs = std::move(inputs);
  operation.outputs = std::move(outputs);
  return operation;
}

}  // namespace

bool Operation::is_message() const { return c10d::isP2POp(type); }

std::int64_t Operation::payload_bytes() const {
  const bool takes_out = inputs.empty() || type == OpType::SCATTER;
  return total_bytes(takes_out ? outputs : inputs);
}

const std::vector<at::Tensor>& Operation::agreed_tensors() const {
  static const Tensors none;
  switch (type) {
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE:
    case OpType::BARRIER:
      return none;
    case OpType::SCATTER:
    case OpType::REDUCE_SCATTER:
      return outputs;
    default:
      return inputs.empty() ? outputs : inputs;
  }
}

std::string operation_name(c10d::OpType type) {
  switch (type) {
    case OpType::ALLREDUCE:
    case OpType::ALLREDUCE_COALESCED:
      return "all-reduce";
    case OpType::ALLGATHER:
    case OpType::_ALLGATHER_BASE:
    case OpType::ALLGATHER_COALESCED:
      return "all-gather";
    case OpType::REDUCE_SCATTER:
    case OpType::_REDUCE_SCATTER_BASE:
      return "reduce-scatter";
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE:
      return "all-to-all";
    case OpType::BROADCAST:
      return "broadcast";
    case OpType::REDUCE:
      return "reduce";
    case OpType::GATHER:
      return "gather";
    case OpType::SCATTER:
      return "scatter";
    case OpType::SEND:
      return "send";
    case OpType::RECV:
      return "recv";
    case OpType::BARRIER:
      return "barrier";
    default:
      return c10d::opTypeToString(type);
  }
}

WorkPtr OperationBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Operation operation = in_place(OpType::ALLREDUCE, tensors);
  operation.reduce_op = options.reduceOp;
  operation.start = [options](Backend& backend, Operation& op) {
    return backend.allreduce(op.outputs, options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  Operation operation = in_place(OpType::ALLREDUCE_COALESCED, tensors);
  operation.reduce_op = options.reduceOp;
  operation.start = [options](Backend& backend, Operation& op) {
    return backend.allreduce_coalesced(op.outputs, options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  check_member("broadcast", static_cast<int>(options.rootRank), getSize());
  Operation operation = in_place(OpType::BROADCAST, tensors);
  operation.peer = static_cast<int>(options.rootRank);
  operation.start = [options](Backend& backend, Operation& op) {
    return backend.broadcast(op.outputs, options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  check_member("reduce", static_cast<int>(options.rootRank), getSize());
  Operation operation = in_place(OpType::REDUCE, tensors);
  operation.reduce_op = options.reduceOp;
  operation.peer = static_cast<int>(options.rootRank);
  operation.start = [options](Backend& backend, Operation& op) {
    return backend.reduce(op.outputs, options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  Operation operation = out_of_place(OpType::ALLGATHER, inputs, only(outputs, "output"));
  operation.start = [options](Backend& backend, Operation& op) {
    auto lists = nested(op.outputs);
    return backend.allgather(lists, op.inputs, options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  Operation operation = out_of_place(OpType::_ALLGATHER_BASE, {input}, {output});
  operation.start = [options](Backend& backend, Operation& op) {
    return backend._allgather_base(op.outputs[0], op.inputs[0], options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  Operation operation = out_of_place(OpType::ALLGATHER_COALESCED, inputs, outputs);
  operation.start = [options](Backend& backend, Operation& op) {
    return backend.allgather_into_tensor_coalesced(op.outputs, op.inputs, options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  check_member("gather", static_cast<int>(options.rootRank), getSize());
  Operation operation = out_of_place(OpType::GATHER, inputs, only(outputs, "output"));
  operation.peer = static_cast<int>(options.rootRank);
  operation.start = [options](Backend& backend, Operation& op) {
    auto lists = nested(op.outputs);
    return backend.gather(lists, op.inputs, options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                  const c10d::ScatterOptions& options) {
  check_member("scatter", static_cast<int>(options.rootRank), getSize());
  Operation operation = out_of_place(OpType::SCATTER, only(inputs, "input"), outputs);
  operation.peer = static_cast<int>(options.rootRank);
  operation.start = [options](Backend& backend, Operation& op) {
    auto lists = nested(op.inputs);
    return backend.scatter(op.outputs, lists, options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  Operation operation = out_of_place(OpType::REDUCE_SCATTER, only(inputs, "input"), outputs);
  operation.reduce_op = options.reduceOp;
  operation.start = [options](Backend& backend, Operation& op) {
    auto lists = nested(op.inputs);
    return backend.reduce_scatter(op.outputs, lists, options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  Operation operation = out_of_place(OpType::_REDUCE_SCATTER_BASE, {input}, {output});
  operation.reduce_op = options.reduceOp;
  operation.start = [options](Backend& backend, Operation& op) {
    return backend._reduce_scatter_base(op.outputs[0], op.inputs[0], options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  Operation operation = out_of_place(OpType::_REDUCE_SCATTER_BASE, inputs, outputs);
  operation.reduce_op = options.reduceOp;
  operation.start = [options](Backend& backend, Operation& op) {
    return backend.reduce_scatter_tensor_coalesced(op.outputs, op.inputs, options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits,
                                        const c10d::AllToAllOptions& options) {
  Operation operation = out_of_place(OpType::ALLTOALL_BASE, {input}, {output});
  operation.input_splits = input_splits;
  operation.output_splits = output_splits;
  operation.start = [options](Backend& backend, Operation& op) {
    return backend.alltoall_base(op.outputs[0], op.inputs[0], op.output_splits, op.input_splits,
                                 options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& options) {
  Operation operation = out_of_place(OpType::ALLTOALL, inputs, outputs);
  operation.start = [options](Backend& backend, Operation& op) {
    return backend.alltoall(op.outputs, op.inputs, options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::send(Tensors& tensors, int peer, int tag) {
  check_partner("send", peer, getRank(), getSize());
  Operation operation = out_of_place(OpType::SEND, tensors, {});
  operation.peer = peer;
  operation.tag = tag;
  operation.start = [](Backend& backend, Operation& op) {
    return backend.send(op.inputs, op.peer, op.tag);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::recv(Tensors& tensors, int peer, int tag) {
  check_partner("recv", peer, getRank(), getSize());
  Operation operation = out_of_place(OpType::RECV, {}, tensors);
  operation.peer = peer;
  operation.tag = tag;
  operation.start = [](Backend& backend, Operation& op) {
    return backend.recv(op.outputs, op.peer, op.tag);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::barrier(const c10d::BarrierOptions& options) {
  Operation operation = in_place(OpType::BARRIER, {});
  operation.start = [options](Backend& backend, Operation&) { return backend.barrier(options); };
  return run(std::move(operation));
}

BackendDecorator::BackendDecorator(BackendPtr inner)
    : OperationBackend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}

}  // namespace ddp
