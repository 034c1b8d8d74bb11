#include "ddp/backends/operation_backend.h"

#include <type_traits>
#include <utility>

#include "ddp/backends/tensor_names.h"
#include "ddp/internal/call_checks.h"

namespace ddp {

namespace {

using c10d::OpType;
using Tensors = OperationBackend::Tensors;
using Lists = OperationBackend::TensorLists;

// c10d gives the tensors of an operation in three forms. Lists of lists have one entry for each local
// device, and here a rank has one device; none if it has no tensors (a gather's output on a rank that
// is not the root).
Tensors flat(const at::Tensor& tensor) { return {tensor}; }
Tensors flat(const Tensors& tensors) { return tensors; }
Tensors flat(const Lists& lists) {
  TORCH_CHECK(lists.size() <= 1, "expected one list of tensors, not ", lists.size());
  return lists.empty() ? Tensors{} : lists.front();
}

// The inverse.
template <typename Form>
Form in_form(const Tensors& tensors) {
  if constexpr (std::is_same_v<Form, at::Tensor>) {
    return tensors.at(0);
  } else if constexpr (std::is_same_v<Form, Tensors>) {
    return tensors;
  } else {
    return tensors.empty() ? Lists{} : Lists{tensors};
  }
}

template <typename Options>
void take_options(Operation& operation, const Options& options, int world_size) {
  if constexpr (requires { options.reduceOp; }) {
    operation.reduce_op = options.reduceOp;
  }
  if constexpr (requires { options.rootRank; }) {
    operation.peer = static_cast<int>(options.rootRank);
    check_member(operation_name(operation.type).c_str(), operation.peer, world_size);
  }
}

template <typename Options>
using InPlaceCall = WorkPtr (c10d::Backend::*)(Tensors&, const Options&);

template <typename Options>
WorkPtr run_in_place(OperationBackend& self, OpType type, const Tensors& tensors,
                     const Options& options, InPlaceCall<Options> call) {
  Operation operation{.type = type, .outputs = tensors, .in_place = true};
  take_options(operation, options, self.getSize());
  operation.start = [options, call](c10d::Backend& backend, Operation& op) {
    return (backend.*call)(op.outputs, options);
  };
  return self.run(std::move(operation));
}

template <typename Outputs, typename Inputs, typename Options>
using Call = WorkPtr (c10d::Backend::*)(Outputs&, Inputs&, const Options&);

template <typename Outputs, typename Inputs, typename Options>
WorkPtr run_out_of_place(OperationBackend& self, OpType type, const Outputs& outputs,
                         const Inputs& inputs, const Options& options,
                         Call<Outputs, Inputs, Options> call) {
  Operation operation{.type = type, .inputs = flat(inputs), .outputs = flat(outputs)};
  take_options(operation, options, self.getSize());
  operation.start = [options, call](c10d::Backend& backend, Operation& op) {
    auto into = in_form<Outputs>(op.outputs);
    auto from = in_form<Inputs>(op.inputs);
    return (backend.*call)(into, from, options);
  };
  return self.run(std::move(operation));
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
  return run_in_place(*this, OpType::ALLREDUCE, tensors, options, &Backend::allreduce);
}

WorkPtr OperationBackend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  return run_in_place(*this, OpType::ALLREDUCE_COALESCED, tensors, options,
                      &Backend::allreduce_coalesced);
}

WorkPtr OperationBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return run_in_place(*this, OpType::BROADCAST, tensors, options, &Backend::broadcast);
}

WorkPtr OperationBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return run_in_place(*this, OpType::REDUCE, tensors, options, &Backend::reduce);
}

WorkPtr OperationBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  return run_out_of_place(*this, OpType::ALLGATHER, outputs, inputs, options, &Backend::allgather);
}

WorkPtr OperationBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  return run_out_of_place(*this, OpType::_ALLGATHER_BASE, output, input, options,
                          &Backend::_allgather_base);
}

WorkPtr OperationBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  return run_out_of_place(*this, OpType::ALLGATHER_COALESCED, outputs, inputs, options,
                          &Backend::allgather_into_tensor_coalesced);
}

WorkPtr OperationBackend::gather(TensorLists& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  return run_out_of_place(*this, OpType::GATHER, outputs, inputs, options, &Backend::gather);
}

WorkPtr OperationBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                  const c10d::ScatterOptions& options) {
  return run_out_of_place(*this, OpType::SCATTER, outputs, inputs, options, &Backend::scatter);
}

WorkPtr OperationBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  return run_out_of_place(*this, OpType::REDUCE_SCATTER, outputs, inputs, options,
                          &Backend::reduce_scatter);
}

WorkPtr OperationBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  return run_out_of_place(*this, OpType::_REDUCE_SCATTER_BASE, output, input, options,
                          &Backend::_reduce_scatter_base);
}

WorkPtr OperationBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return run_out_of_place(*this, OpType::_REDUCE_SCATTER_BASE, outputs, inputs, options,
                          &Backend::reduce_scatter_tensor_coalesced);
}

WorkPtr OperationBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& options) {
  return run_out_of_place(*this, OpType::ALLTOALL, outputs, inputs, options, &Backend::alltoall);
}

WorkPtr OperationBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits,
                                        const c10d::AllToAllOptions& options) {
  Operation operation{.type = OpType::ALLTOALL_BASE,
                      .inputs = {input},
                      .outputs = {output},
                      .input_splits = input_splits,
                      .output_splits = output_splits};
  operation.start = [options](Backend& backend, Operation& op) {
    return backend.alltoall_base(op.outputs[0], op.inputs[0], op.output_splits, op.input_splits,
                                 options);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::send(Tensors& tensors, int peer, int tag) {
  check_partner("send", peer, getRank(), getSize());
  Operation operation{.type = OpType::SEND, .inputs = tensors, .peer = peer, .tag = tag};
  operation.start = [](Backend& backend, Operation& op) {
    return backend.send(op.inputs, op.peer, op.tag);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::recv(Tensors& tensors, int peer, int tag) {
  check_partner("recv", peer, getRank(), getSize());
  Operation operation{.type = OpType::RECV, .outputs = tensors, .peer = peer, .tag = tag};
  operation.start = [](Backend& backend, Operation& op) {
    return backend.recv(op.outputs, op.peer, op.tag);
  };
  return run(std::move(operation));
}

WorkPtr OperationBackend::barrier(const c10d::BarrierOptions& options) {
  Operation operation{.type = OpType::BARRIER, .in_place = true};
  operation.start = [options](Backend& backend, Operation&) { return backend.barrier(options); };
  return run(std::move(operation));
}

BackendDecorator::BackendDecorator(BackendPtr inner)
    : OperationBackend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}

}  // namespace ddp
