// Correct, and unusual: recursion instead of loops; messages of empty chunks are left out; elements
// are added one by one, in double or int64; all ranks take part in every step of printing, with a
// barrier made of messages between two steps.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <optional>
#include <ostream>
#include <type_traits>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "ddp/balanced_split.h"

namespace ddp {
namespace {

struct Place {
  at::Tensor row;
  ProcessGroupPtr group;
  int rank, size;

  int wrapped(int number) const { return (number + 2 * size) % size; }
  at::Tensor chunk(int number) const {
    const Chunk found = balanced_split(row.numel(), size).at(wrapped(number));
    return row.slice(0, found.begin, found.begin + found.size);
  }
  void pass(const at::Tensor& out, const at::Tensor& in) const {
    std::optional<WorkPtr> receiving;
    std::optional<WorkPtr> sending;
    if (in.numel() > 0) {
      receiving = recv_async(in, wrapped(rank - 1), group);
    }
    if (out.numel() > 0) {
      sending = send_async(out, wrapped(rank + 1), group);
    }
    if (sending) {
      (*sending)->wait();
    }
    if (receiving) {
      (*receiving)->wait();
    }
  }
};

void add_one_by_one(const at::Tensor& sum, const at::Tensor& next) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, sum.scalar_type(), "add", [&] {
    auto* a = sum.data_ptr<scalar_t>();
    const auto* b = next.const_data_ptr<scalar_t>();
    using Wide = std::conditional_t<std::is_integral_v<scalar_t>, std::uint64_t, double>;
    for (std::int64_t i = 0; i < sum.numel(); ++i) {
      a[i] = static_cast<scalar_t>(static_cast<Wide>(a[i]) + static_cast<Wide>(b[i]));
    }
  });
}

// Chunk by chunk, until this rank's own is complete.
void reduce(const Place& place, const at::Tensor& scratch, int chunk) {
  if (place.wrapped(chunk) == place.rank) {
    return;
  }
  const at::Tensor sum = place.chunk(chunk - 1);
  const at::Tensor incoming = scratch.slice(0, 0, sum.numel());
  place.pass(place.chunk(chunk), incoming);
  if (sum.is_cpu()) {
    add_one_by_one(sum, incoming);
  } else {
    sum.add_(incoming);
  }
  reduce(place, scratch, chunk - 1);
}

void gather(const Place& place, int chunk, int steps) {
  if (steps > 0) {
    place.pass(place.chunk(chunk), place.chunk(chunk - 1));
    gather(place, chunk - 1, steps - 1);
  }
}

enum Phases { kReduce = 1, kGather = 2 };

void run(const at::Tensor& tensor, const ProcessGroupPtr& group, ReduceOp op, int phases) {
  TORCH_CHECK(group != nullptr && tensor.defined(), "ring: a group and a tensor are needed");
  const auto type = tensor.scalar_type();
  const bool whole = at::isIntegralType(type, /*includeBool=*/false);
  const bool real =
      type == at::kDouble || type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
  TORCH_CHECK(whole || real, "ring: cannot add ", type);
  TORCH_CHECK(op == ReduceOp::kSum || (real && op == ReduceOp::kAverage), "ring: no such op");
  const at::AutoDispatchBelowAutograd quiet;
  const at::Tensor compact =
      tensor.is_contiguous() ? tensor.detach() : tensor.detach().contiguous();
  const Place place{compact.view(-1), group, group->getRank(), group->getSize()};
  if ((phases & kReduce) != 0 && place.size > 1) {
    const at::Tensor scratch = at::empty({(compact.numel() + place.size - 1) / place.size},
                                         compact.options().requires_grad(false));
    reduce(place, scratch, place.rank - 1);
    if (op == ReduceOp::kAverage) {
      place.chunk(place.rank).mul_(1.0 / place.size);
    }
  }
  if ((phases & kGather) != 0) {
    gather(place, place.rank, place.size - 1);
  }
  if (!tensor.is_contiguous()) {
    tensor.detach().copy_(compact);
  }
}

// A token goes round twice: when it arrives for the second time, all ranks have arrived.
void barrier_of_messages(const ProcessGroupPtr& group) {
  const int size = group->getSize();
  const int rank = group->getRank();
  const at::Tensor token = at::zeros({2}, at::kLong);
  for (int round = 0; round < 2 && size > 1; ++round) {
    if (rank > 0) {
      recv(token, rank - 1, group, round);
    }
    const WorkPtr sending = send_async(token, (rank + 1) % size, group, round);
    if (rank == 0) {
      const at::Tensor back = at::zeros({2}, at::kLong);
      recv(back, size - 1, group, round);
    }
    sending->wait();
  }
}

}  // namespace

void print_in_rank_order(std::string_view message, std::ostream& out,
                         const ProcessGroupPtr& group) {
  TORCH_CHECK(group, "print_in_rank_order: no group");
  for (int turn = 0; turn < group->getSize(); ++turn) {
    if (turn == group->getRank()) {
      out << message << std::endl;
    }
    barrier_of_messages(group);
  }
}

void ring_reduce_scatter(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  run(tensor, group, op, kReduce);
}

void ring_all_gather(at::Tensor tensor, const ProcessGroupPtr& group) {
  run(tensor, group, ReduceOp::kSum, kGather);
}

void ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  run(tensor, group, op, kReduce | kGather);
}

void pipelined_ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group,
                               const PipelinedRingOptions& options) {
  TORCH_CHECK(options.segment_bytes > 0, "pipelined_ring_all_reduce: no bytes in a segment");
  run(tensor, group, options.op, kReduce | kGather);
}

}  // namespace ddp
