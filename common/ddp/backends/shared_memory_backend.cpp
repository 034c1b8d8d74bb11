#include "ddp/backends/shared_memory_backend.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <cstring>

namespace ddp {

namespace {

using c10d::OpType;

// `count` elements at `address`, as a tensor that owns nothing.
at::Tensor elements(const void* address, std::int64_t count, const at::Tensor& like) {
  return at::from_blob(const_cast<void*>(address), {count}, like.options());
}

void combine(const at::Tensor& sum, const at::Tensor& next, c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::AVG:
      sum.add_(next);
      break;
    case c10d::ReduceOp::PRODUCT:
      sum.mul_(next);
      break;
    case c10d::ReduceOp::MIN:
      sum.copy_(at::minimum(sum, next));
      break;
    case c10d::ReduceOp::MAX:
      sum.copy_(at::maximum(sum, next));
      break;
    case c10d::ReduceOp::BAND:
      sum.bitwise_and_(next);
      break;
    case c10d::ReduceOp::BOR:
      sum.bitwise_or_(next);
      break;
    case c10d::ReduceOp::BXOR:
      sum.bitwise_xor_(next);
      break;
    default:
      TORCH_CHECK(false, "this reduction is not supported");
  }
}

// Puts the reduction of what all ranks posted at `offset` into `output`.
void reduce_into(const at::Tensor& output, const std::vector<const char*>& slabs,
                 std::size_t offset, c10d::ReduceOp::RedOpType op) {
  TORCH_CHECK(op != c10d::ReduceOp::AVG || output.is_floating_point() || output.is_complex(),
              "an average needs floating point numbers, not ", output.scalar_type());
  const at::Tensor result = elements(output.data_ptr(), output.numel(), output);
  for (std::size_t rank = 0; rank < slabs.size(); ++rank) {
    const at::Tensor posted = elements(slabs[rank] + offset, output.numel(), output);
    if (rank == 0) {
      result.copy_(posted);
    } else {
      combine(result, posted, op);
    }
  }
  if (op == c10d::ReduceOp::AVG) {
    result.div_(static_cast<double>(slabs.size()));
  }
}

void copy_out(const at::Tensor& output, const char* bytes) {
  std::memcpy(output.data_ptr(), bytes, output.nbytes());
}

// Splits the tensor into one piece for each rank: the given numbers of rows, or equal parts.
std::vector<at::Tensor> pieces_of(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                                  int world_size) {
  TORCH_CHECK(!splits.empty() || tensor.numel() % world_size == 0, tensor.numel(),
              " elements do not fall into ", world_size, " equal parts");
  if (splits.empty()) {
    return tensor.view({world_size, -1}).unbind(0);
  }
  return tensor.split_with_sizes(splits, 0);
}

}  // namespace

SharedMemoryBackend::SharedMemoryBackend(SharedExchange& exchange, int rank, int world_size)
    : OperationBackend(rank, world_size), exchange_(exchange) {}

WorkPtr SharedMemoryBackend::run(Operation operation) {
  const at::NoGradGuard no_grad;
  const at::RecordFunctionGuard unobserved(false);
  switch (operation.type) {
    case OpType::ALLREDUCE:
    case OpType::ALLREDUCE_COALESCED:
    case OpType::REDUCE:
      all_reduce(operation);
      break;
    case OpType::BROADCAST: {
      const char* from = post(operation.outputs)[operation.peer];
      for (const at::Tensor& output : operation.outputs) {
        copy_out(output, from);
        from += output.nbytes();
      }
      break;
    }
    case OpType::ALLGATHER:
    case OpType::GATHER:
    case OpType::_ALLGATHER_BASE:
    case OpType::ALLGATHER_COALESCED:
      all_gather(operation);
      break;
    case OpType::SCATTER: {
      const auto slabs = post(operation.inputs);
      copy_out(operation.outputs[0], slabs[operation.peer] + rank_ * operation.outputs[0].nbytes());
      break;
    }
    case OpType::REDUCE_SCATTER:
    case OpType::_REDUCE_SCATTER_BASE:
      reduce_and_scatter(operation);
      break;
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE:
      all_to_all(operation);
      break;
    case OpType::SEND:
    case OpType::RECV:
      message(operation);
      break;
    case OpType::BARRIER:
      post({});
      break;
    default:
      TORCH_CHECK(false, "shared memory does not support ", operation_name(operation.type));
  }
  auto done =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  done->markCompleted(c10::IValue(operation.outputs));
  return c10d::Work::create_from_future(done);
}

std::vector<const char*> SharedMemoryBackend::post(const Tensors& tensors) {
  char* slab = exchange_.slab(rank_);
  std::size_t used = 0;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(used + tensor.nbytes() <= SharedExchange::kSlabBytes,
                "the graded backend moves at most ", SharedExchange::kSlabBytes >> 20,
                " MiB in an operation");
    std::memcpy(slab + used, tensor.const_data_ptr(), tensor.nbytes());
    used += tensor.nbytes();
  }
  return exchange_.post(rank_);
}

void SharedMemoryBackend::all_reduce(const Operation& operation) {
  const auto slabs = post(operation.outputs);
  if (operation.type == OpType::REDUCE && operation.peer != rank_) {
    return;
  }
  std::size_t offset = 0;
  for (const at::Tensor& output : operation.outputs) {
    reduce_into(output, slabs, offset, operation.reduce_op);
    offset += output.nbytes();
  }
}

// Output i is input i of all ranks; an all-gather into a list has one input and a list of outputs
// instead.
void SharedMemoryBackend::all_gather(const Operation& operation) {
  const auto slabs = post(operation.inputs);
  const bool into_list = operation.type == OpType::ALLGATHER || operation.type == OpType::GATHER;
  if (into_list) {
    for (std::size_t rank = 0; rank < operation.outputs.size(); ++rank) {
      copy_out(operation.outputs[rank], slabs[rank]);
    }
    return;
  }
  std::size_t offset = 0;
  for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
    const std::size_t bytes = operation.inputs[i].nbytes();
    auto* output = static_cast<char*>(operation.outputs[i].data_ptr());
    for (int rank = 0; rank < size_; ++rank) {
      std::memcpy(output + rank * bytes, slabs[rank] + offset, bytes);
    }
    offset += bytes;
  }
}

// Output i is part `rank_` of the reduction of input i over all ranks; with a list of inputs there
// is one output.
void SharedMemoryBackend::reduce_and_scatter(const Operation& operation) {
  const auto slabs = post(operation.inputs);
  std::size_t offset = 0;
  for (const at::Tensor& output : operation.outputs) {
    reduce_into(output, slabs, offset + rank_ * output.nbytes(), operation.reduce_op);
    offset += size_ * output.nbytes();
  }
}

// Ranks may send each other different amounts, so each first posts its number of bytes for each
// rank.
void SharedMemoryBackend::all_to_all(const Operation& operation) {
  const bool lists = operation.type == OpType::ALLTOALL;
  const Tensors gives =
      lists ? operation.inputs : pieces_of(operation.inputs[0], operation.input_splits, size_);
  const Tensors takes =
      lists ? operation.outputs : pieces_of(operation.outputs[0], operation.output_splits, size_);
  const at::Tensor sizes = at::empty({size_}, at::kLong);
  for (int rank = 0; rank < size_; ++rank) {
    sizes[rank] = static_cast<std::int64_t>(gives[rank].nbytes());
  }
  Tensors posted{sizes};
  posted.insert(posted.end(), gives.begin(), gives.end());
  const auto slabs = post(posted);
  for (int rank = 0; rank < size_; ++rank) {
    const auto* given = reinterpret_cast<const std::int64_t*>(slabs[rank]);
    const char* data = slabs[rank] + sizes.nbytes();
    for (int before = 0; before < rank_; ++before) {
      data += given[before];
    }
    TORCH_CHECK(given[rank_] == static_cast<std::int64_t>(takes[rank].nbytes()), "rank ", rank,
                " gives ", given[rank_], " bytes in an all-to-all where rank ", rank_, " expects ",
                takes[rank].nbytes());
    copy_out(takes[rank], data);
  }
}

void SharedMemoryBackend::message(const Operation& operation) {
  for (const at::Tensor& tensor : operation.inputs) {
    exchange_.send(rank_, operation.peer, operation.tag,
                   {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  for (const at::Tensor& tensor : operation.outputs) {
    exchange_.receive(operation.peer, rank_, operation.tag,
                      {static_cast<char*>(tensor.data_ptr()), tensor.nbytes()});
  }
}

}  // namespace ddp
