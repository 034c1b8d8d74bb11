// Correct, and unusual: the receive buffer persists from call to call; messages are bytes; waits
// use futures; an average is the last sum multiplied by 1/N; a rank prints when it has received
// messages from all ranks before it.
#include <ATen/ATen.h>

#include <ostream>
#include <vector>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "ddp/balanced_split.h"

namespace ddp {
namespace {

// No more bytes than the largest chunk of the last call.
at::Tensor& scratch() {
  thread_local at::Tensor bytes;
  return bytes;
}

at::Tensor scratch_like(const at::Tensor& chunk) {
  at::Tensor& bytes = scratch();
  const auto needed = static_cast<std::int64_t>(chunk.nbytes());
  if (!bytes.defined() || bytes.numel() < needed || bytes.device() != chunk.device()) {
    bytes = at::Tensor();
    bytes = at::empty({needed}, chunk.options().dtype(at::kByte));
  }
  return bytes.narrow(0, 0, needed).view(chunk.scalar_type());
}

class BytesOnTheRing {
 public:
  BytesOnTheRing(const at::Tensor& row, const ProcessGroupPtr& group)
      : row_(row), group_(group), chunks_(balanced_split(row.numel(), group->getSize())) {
    if (scratch().defined() && scratch().numel() > chunks_[0].size * row.element_size()) {
      scratch().reset();
    }
  }

  int size() const { return static_cast<int>(chunks_.size()); }
  at::Tensor chunk_behind(int places) const {
    const Chunk& chunk = chunks_[(group_->getRank() + 2 * size() - places) % size()];
    return row_.narrow(0, chunk.begin, chunk.size);
  }
  c10::intrusive_ptr<c10::ivalue::Future> receive(const at::Tensor& in) const {
    std::vector<at::Tensor> bytes{in.view(at::kByte)};
    return group_->recv(bytes, (group_->getRank() + size() - 1) % size(), 0)->getFuture();
  }
  WorkPtr send(const at::Tensor& out) const {
    std::vector<at::Tensor> bytes{out.view(at::kByte)};
    return group_->send(bytes, (group_->getRank() + 1) % size(), 0);
  }

 private:
  at::Tensor row_;
  ProcessGroupPtr group_;
  std::vector<Chunk> chunks_;
};

void check(const at::Tensor& tensor, const ProcessGroupPtr& group, ReduceOp op) {
  TORCH_CHECK(tensor.defined(), "which tensor?");
  TORCH_CHECK(group, "which group?");
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
      TORCH_CHECK(op == ReduceOp::kSum || op == ReduceOp::kAverage, "which op?");
      return;
    case at::kLong:
    case at::kInt:
    case at::kShort:
    case at::kChar:
    case at::kByte:
      TORCH_CHECK(op == ReduceOp::kSum, "whole numbers are only summed");
      return;
    default:
      TORCH_CHECK(false, "which numbers are ", tensor.scalar_type(), "?");
  }
}

// The tensor's elements in one row, and the way back.
at::Tensor row_of(const at::Tensor& tensor) { return tensor.detach().contiguous().view({-1}); }

void bring_back(const at::Tensor& row, const at::Tensor& tensor) {
  if (row.data_ptr() != tensor.data_ptr()) {
    tensor.detach().copy_(row.view(tensor.sizes()));
  }
}

void reduce_row(const at::Tensor& row, const ProcessGroupPtr& group, ReduceOp op) {
  const BytesOnTheRing ring(row, group);
  for (int step = 1; step < ring.size(); ++step) {
    const at::Tensor sum = ring.chunk_behind(step + 1);
    const at::Tensor incoming = scratch_like(sum);
    const auto received = ring.receive(incoming);
    const WorkPtr sent = ring.send(ring.chunk_behind(step));
    received->wait();
    sent->wait();
    sum.add_(incoming);
  }
  if (op == ReduceOp::kAverage) {
    ring.chunk_behind(0).mul_(1.0 / ring.size());
  }
}

// All receives are posted at the start; their data arrive in this order.
void gather_row(const at::Tensor& row, const ProcessGroupPtr& group) {
  const BytesOnTheRing ring(row, group);
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> received;
  for (int step = 1; step < ring.size(); ++step) {
    received.push_back(ring.receive(ring.chunk_behind(step)));
  }
  std::vector<WorkPtr> sent;
  for (int step = 0; step + 1 < ring.size(); ++step) {
    if (step > 0) {
      received[step - 1]->waitAndThrow();
    }
    sent.push_back(ring.send(ring.chunk_behind(step)));
  }
  for (const WorkPtr& work : sent) {
    work->wait();
  }
  if (!received.empty()) {
    received.back()->waitAndThrow();
  }
}

}  // namespace

void print_in_rank_order(std::string_view message, std::ostream& out,
                         const ProcessGroupPtr& group) {
  TORCH_CHECK(group, "which group?");
  std::vector<WorkPtr> works;
  std::vector<at::Tensor> marks;
  for (int before = 0; before < group->getRank(); ++before) {
    marks.push_back(at::zeros({3}, at::kByte));
    works.push_back(recv_async(marks.back(), before, group));
  }
  for (const WorkPtr& work : works) {
    work->wait();
  }
  works.clear();
  for (const char letter : message) {
    out.put(letter);
  }
  out << "\n";
  out.flush();
  const at::Tensor mark = at::zeros({3}, at::kByte);
  for (int after = group->getSize() - 1; after > group->getRank(); --after) {
    works.push_back(send_async(mark, after, group));
  }
  for (const WorkPtr& work : works) {
    work->wait();
  }
}

void ring_reduce_scatter(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check(tensor, group, op);
  const at::NoGradGuard no_grad;
  const at::Tensor row = row_of(tensor);
  reduce_row(row, group, op);
  bring_back(row, tensor);
}

void ring_all_gather(at::Tensor tensor, const ProcessGroupPtr& group) {
  check(tensor, group, ReduceOp::kSum);
  const at::NoGradGuard no_grad;
  const at::Tensor row = row_of(tensor);
  gather_row(row, group);
  bring_back(row, tensor);
}

void ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check(tensor, group, op);
  const at::NoGradGuard no_grad;
  const at::Tensor row = row_of(tensor);
  reduce_row(row, group, op);
  gather_row(row, group);
  bring_back(row, tensor);
}

void pipelined_ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group,
                               const PipelinedRingOptions& options) {
  TORCH_CHECK(options.segment_bytes > 0, "how many bytes?");
  ring_all_reduce(tensor, group, options.op);
}

}  // namespace ddp
