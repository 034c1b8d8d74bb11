#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "ddp/backends/operation_backend.h"
#include "ddp/backends/tensor_names.h"
#include "ddp/ranks/stage_library.h"
#include "ddp/referee/access_watch.h"
#include "ddp/referee/client.h"

namespace ddp {

namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

// Views of the rows of each tensor for each of `ranks`, by rank.
Tensors pieces_by_rank(const Tensors& tensors, int ranks) {
  Tensors pieces;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const at::Tensor& tensor : tensors) {
      TORCH_CHECK(tensor.numel() % ranks == 0, tensor.numel(), " elements do not fall into ", ranks,
                  " equal parts");
      pieces.push_back(tensor.view({ranks, -1})[rank]);
    }
  }
  return pieces;
}

// An all-to-all's input begins with the number of bytes for each rank.
at::Tensor sizes_by_rank(const Operation& operation, int ranks) {
  at::Tensor sizes = at::empty({ranks}, at::kLong);
  const auto all = total_bytes(operation.inputs);
  const auto rows = operation.inputs[0].dim() > 0 ? operation.inputs[0].size(0) : 1;
  TORCH_CHECK(
      operation.type == OpType::ALLTOALL || !operation.input_splits.empty() || rows % ranks == 0,
      rows, " rows do not fall into ", ranks, " equal parts");
  for (int rank = 0; rank < ranks; ++rank) {
    sizes[rank] = operation.type == OpType::ALLTOALL
                      ? static_cast<std::int64_t>(operation.inputs.at(rank).nbytes())
                  : operation.input_splits.empty() ? all / ranks
                                                   : operation.input_splits[rank] * all / rows;
  }
  return sizes;
}

// The same operation on lists of tensors whose bytes are in the order in which the referee takes
// and gives them.
Operation in_wire_order(Operation operation, int ranks) {
  const std::size_t tensors = operation.inputs.size();
  if (operation.type == OpType::ALLGATHER_COALESCED) {
    operation.type = OpType::ALLGATHER;
    operation.outputs = pieces_by_rank(operation.outputs, ranks);
  } else if (operation.type == OpType::_REDUCE_SCATTER_BASE && tensors > 1) {
    operation.inputs = pieces_by_rank(operation.inputs, ranks);
  } else if (operation.type == OpType::ALLTOALL || operation.type == OpType::ALLTOALL_BASE) {
    operation.inputs.insert(operation.inputs.begin(), sizes_by_rank(operation, ranks));
  }
  return operation;
}

void check_dense(const Operation& operation, const Client& client) {
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "communication needs a dense tensor, and ",
                  client.name_of(tensor), " has gaps: ", describe_tensor(tensor), " with strides ",
                  tensor.strides(),
                  ". Send a copy, tensor.contiguous(), and write what comes back into the tensor: "
                  "tensor.copy_(copy)");
    }
  }
}

Event event_of(const Operation& operation) {
  Event event{{.kind = EventKind::kLaunch}};
  event.caller = caller_in_stage();
  event.type = operation.type;
  event.reduce_op = operation.reduce_op;
  event.peer = operation.peer;
  event.tag = operation.tag;
  event.bytes = operation.payload_bytes();
  std::ostringstream shapes;
  for (const at::Tensor& tensor : operation.agreed_tensors()) {
    event.dtype = tensor.scalar_type();
    event.elements += tensor.numel();
    shapes << (event.tensors++ > 0 ? " " : "") << tensor.sizes();
  }
  event.shape = shapes.str();
  return event;
}

// What c10d sees of a client.
class ClientBackend : public OperationBackend {
 public:
  ClientBackend(std::shared_ptr<Client> client, GroupIndex group, int rank, int size)
      : OperationBackend(rank, size), client_(std::move(client)), group_(group) {}

  const std::string getBackendName() const override { return "referee"; }

  WorkPtr run(Operation operation) override {
    const OwnAccess own;
    check_dense(operation, *client_);
    Event launch = event_of(operation);
    launch.group = group_;
    operation = in_wire_order(std::move(operation), size_);
    launch.input_bytes = total_bytes(operation.in_place ? operation.outputs : operation.inputs);
    launch.output_bytes = total_bytes(operation.outputs);
    return client_->start(std::move(operation), launch);
  }

 private:
  std::shared_ptr<Client> client_;
  GroupIndex group_;
};

}  // namespace

ProcessGroupPtr make_group(const std::shared_ptr<Client>& client, GroupIndex index) {
  const auto members = members_of(client->world(), index);
  const auto self = std::ranges::find(members, client->rank());
  TORCH_CHECK(self != members.end(), "rank ", client->rank(), " is no member of group ", index);
  return make_process_group(c10::make_intrusive<ClientBackend>(
      client, index, static_cast<int>(self - members.begin()), static_cast<int>(members.size())));
}

}  // namespace ddp
