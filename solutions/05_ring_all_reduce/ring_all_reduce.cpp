#include "05_ring_all_reduce/ring_all_reduce.h"

#include <ATen/ATen.h>

#include <ostream>

#include "ring.h"

namespace ddp {

void print_in_rank_order(std::string_view message, std::ostream& out,
                         const ProcessGroupPtr& group) {
  TORCH_CHECK(group, "print_in_rank_order: the process group is null");
  const int rank = group->getRank();
  const at::Tensor turn = at::zeros({1});  // what counts is that it arrives
  if (rank > 0) {
    recv(turn, rank - 1, group);
  }
  out << message << '\n' << std::flush;
  if (rank + 1 < group->getSize()) {
    send(turn, rank + 1, group);
  }
}

void ring_reduce_scatter(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check_arguments("ring_reduce_scatter", tensor, group, op);
  const at::NoGradGuard no_grad;
  const FlatTensor flat(tensor);
  const Ring ring(flat.elements(), group);
  const int size = ring.size();
  const at::Tensor incoming = at::empty({size > 1 ? ring.largest_chunk() : 0}, tensor.options());
  // In step s rank r passes on chunk r - s, which holds the sum over s ranks by then. The chunk that
  // it receives and completes in the last step is r - N: its own.
  for (int step = 1; step < size; ++step) {
    const at::Tensor sum = ring.chunk(step + 1);
    const at::Tensor received = incoming.narrow(0, 0, sum.numel());
    ring.shift(ring.chunk(step), received);
    sum.add_(received);
  }
  if (op == ReduceOp::kAverage) {
    ring.chunk(0).div_(size);
  }
  flat.write_back();
}

void ring_all_gather(at::Tensor tensor, const ProcessGroupPtr& group) {
  check_arguments("ring_all_gather", tensor, group);
  const at::NoGradGuard no_grad;
  const FlatTensor flat(tensor);
  const Ring ring(flat.elements(), group);
  // Each step passes on what the step before received; the first one, this rank's own chunk.
  for (int step = 0; step + 1 < ring.size(); ++step) {
    ring.shift(ring.chunk(step), ring.chunk(step + 1));
  }
  flat.write_back();
}

void ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check_arguments("ring_all_reduce", tensor, group, op);
  const at::NoGradGuard no_grad;
  const FlatTensor flat(tensor);
  ring_reduce_scatter(flat.elements(), group, op);
  ring_all_gather(flat.elements(), group);
  flat.write_back();
}

}  // namespace ddp
