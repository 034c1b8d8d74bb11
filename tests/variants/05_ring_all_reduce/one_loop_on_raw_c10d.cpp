// Correct, and unusual: c10d without the lab's helpers; the all-reduce is one loop of 2(N-1) steps
// with the textbook's numbering, in which rank r completes chunk r + 1 halfway; waits poll; the
// average is divided at the very end; rank 0 tells the others when to print.
#include <ATen/ATen.h>

#include <ostream>
#include <thread>
#include <vector>

#include "05_ring_all_reduce/ring_all_reduce.h"

namespace ddp {
namespace {

int modulo(int a, int n) { return ((a % n) + n) % n; }

void poll(const WorkPtr& work) {
  while (!work->isCompleted()) {
    std::this_thread::yield();
  }
  work->wait();
}

struct Neighbours {
  explicit Neighbours(const ProcessGroupPtr& g)
      : group(g),
        size(g->getSize()),
        right(modulo(g->getRank() + 1, size)),
        left(modulo(g->getRank() - 1, size)) {}

  // Sends first, without waiting for it.
  void exchange(const at::Tensor& out, const at::Tensor& in) const {
    std::vector<at::Tensor> outgoing{out};
    std::vector<at::Tensor> incoming{in};
    const WorkPtr sending = group->send(outgoing, right, /*tag=*/5);
    poll(group->recv(incoming, left, /*tag=*/5));
    poll(sending);
  }

  ProcessGroupPtr group;
  int size, right, left;
};

bool is_float(const at::Tensor& t) {
  const at::ScalarType type = t.scalar_type();
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

void check(const at::Tensor& t, const ProcessGroupPtr& group, ReduceOp op) {
  if (!group || !t.defined()) {
    throw c10::ValueError({__func__, __FILE__, 0}, "needs a group and a tensor");
  }
  const bool integer = c10::isIntegralType(t.scalar_type(), false);
  TORCH_CHECK_TYPE(is_float(t) || integer, "needs numbers");
  TORCH_CHECK_VALUE(op == ReduceOp::kSum || (op == ReduceOp::kAverage && !integer), "what op?");
}

// Runs `body` on the chunks of a flat version of the tensor.
template <typename Body>
void with_chunks(const at::Tensor& tensor, int size, const Body& body) {
  const at::NoGradGuard no_grad;
  const at::Tensor bare = tensor.detach();
  if (bare.is_contiguous()) {
    body(bare.view({-1}).tensor_split(size));
    return;
  }
  const at::Tensor copy = bare.reshape({-1}).clone();
  body(copy.tensor_split(size));
  bare.copy_(copy.view(bare.sizes()));
}

using Chunks = std::vector<at::Tensor>;

}  // namespace

void print_in_rank_order(std::string_view message, std::ostream& out,
                         const ProcessGroupPtr& group) {
  TORCH_CHECK(group, "no group");
  const auto print = [&] {
    out.write(message.data(), static_cast<std::streamsize>(message.size()));
    out.put('\n').flush();
  };
  if (group->getRank() > 0) {
    std::vector<at::Tensor> token{at::empty({0})};
    group->recv(token, 0, 1)->wait();
    print();
    group->send(token, 0, 2)->wait();
    return;
  }
  print();
  for (int rank = 1; rank < group->getSize(); ++rank) {
    std::vector<at::Tensor> token{at::empty({0})};
    group->send(token, rank, 1)->wait();
    group->recv(token, rank, 2)->wait();
  }
}

void ring_reduce_scatter(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check(tensor, group, op);
  const Neighbours ring(group);
  const int me = group->getRank();
  with_chunks(tensor, ring.size, [&](const Chunks& chunks) {
    for (int step = ring.size - 1; step > 0; --step) {  // chunk r + step goes on to the right
      at::Tensor sum = chunks[modulo(me + step - 1, ring.size)];
      const at::Tensor scratch = at::empty_like(sum);
      ring.exchange(chunks[modulo(me + step, ring.size)], scratch);
      at::add_out(sum, scratch, sum);
    }
    if (op == ReduceOp::kAverage) {
      chunks[me].div_(ring.size);
    }
  });
}

void ring_all_gather(at::Tensor tensor, const ProcessGroupPtr& group) {
  check(tensor, group, ReduceOp::kSum);
  const Neighbours ring(group);
  with_chunks(tensor, ring.size, [&](const Chunks& chunks) {
    for (int chunk = group->getRank(), left = ring.size - 1; left > 0; --left) {
      const int next = modulo(chunk - 1, ring.size);
      ring.exchange(chunks[chunk], chunks[next]);
      chunk = next;
    }
  });
}

void ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check(tensor, group, op);
  const Neighbours ring(group);
  with_chunks(tensor, ring.size, [&](const Chunks& chunks) {
    at::Tensor scratch;
    for (int step = 0; step < 2 * (ring.size - 1); ++step) {
      const at::Tensor& out = chunks[modulo(group->getRank() - step, ring.size)];
      const at::Tensor& in = chunks[modulo(group->getRank() - step - 1, ring.size)];
      if (step >= ring.size - 1) {
        ring.exchange(out, in);
        continue;
      }
      scratch = at::Tensor();  // free the old one before allocating the new one
      scratch = at::empty_like(in);
      ring.exchange(out, scratch);
      at::Tensor(in) += scratch;
    }
    if (op == ReduceOp::kAverage) {
      for (const at::Tensor& chunk : chunks) {
        chunk.div_(ring.size);
      }
    }
  });
}

void pipelined_ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group,
                               const PipelinedRingOptions& options) {
  TORCH_CHECK(options.segment_bytes > 0, "segments need bytes");
  ring_all_reduce(tensor, group, options.op);
}

}  // namespace ddp
