// Correct, and unusual: a send is waited for one step later, when the next message is already in
// flight, and the last one at the end; chunks are iterator ranges in a row of bytes; an average
// divides the completed chunk just before it is first sent; each phase has its own tag; the token
// that orders printing first travels round the ring backwards.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <utility>
#include <vector>

#include "05_ring_all_reduce/ring_all_reduce.h"

namespace ddp {
namespace {

class Relay {
 public:
  Relay(at::Tensor row, ProcessGroupPtr group, int tag)
      : row_(std::move(row)), group_(std::move(group)), size_(group_->getSize()), tag_(tag) {
    begins_.resize(size_ + 1);
    for (int chunk = 0; chunk <= size_; ++chunk) {
      const std::int64_t larger = row_.numel() % size_;
      begins_[chunk] = chunk * (row_.numel() / size_) + std::min<std::int64_t>(chunk, larger);
    }
  }

  at::Tensor operator[](int chunk) const {
    const int wrapped = (chunk % size_ + size_) % size_;
    return row_.narrow(0, begins_[wrapped], begins_[wrapped + 1] - begins_[wrapped]);
  }

  void start_send(const at::Tensor& out) {
    WorkPtr before = std::move(sending_);
    sending_ = send_async(out, (group_->getRank() + 1) % size_, group_, tag_);
    if (before) {
      before->wait();
    }
  }
  void receive(const at::Tensor& in) {
    recv(in, (group_->getRank() - 1 + size_) % size_, group_, tag_);
  }
  void finish() {
    if (sending_) {
      sending_->wait();
    }
  }

 private:
  at::Tensor row_;
  ProcessGroupPtr group_;
  int size_, tag_;
  std::vector<std::int64_t> begins_;
  WorkPtr sending_;
};

void reduce(const at::Tensor& row, const ProcessGroupPtr& group, ReduceOp op) {
  const int rank = group->getRank();
  const int size = group->getSize();
  Relay relay(row, group, /*tag=*/1);
  at::Tensor incoming;
  for (int chunk = rank - 1; chunk > rank - size; --chunk) {
    relay.start_send(relay[chunk]);
    const at::Tensor sum = relay[chunk - 1];
    if (!incoming.defined()) {
      incoming = at::empty_like(relay[0]);
    }
    const at::Tensor received = incoming.narrow(0, 0, sum.numel());
    relay.receive(received);
    sum.copy_(sum.add_(received));
  }
  relay.finish();
  if (op == ReduceOp::kAverage) {
    relay[rank].div_(at::scalar_tensor(size, at::kDouble));
  }
}

void gather(const at::Tensor& row, const ProcessGroupPtr& group) {
  const int rank = group->getRank();
  Relay relay(row, group, /*tag=*/2);
  for (int chunk = rank; chunk > rank - group->getSize() + 1; --chunk) {
    relay.start_send(relay[chunk]);
    relay.receive(relay[chunk - 1]);
  }
  relay.finish();
}

template <typename Body>
void on_row(const at::Tensor& tensor, const ProcessGroupPtr& group, ReduceOp op, Body body) {
  constexpr std::array kReal = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  TORCH_CHECK(tensor.defined(), "the tensor is not defined");
  TORCH_CHECK(group, "there is no group");
  const bool real = std::ranges::find(kReal, tensor.scalar_type()) != kReal.end();
  TORCH_CHECK(real || c10::isIntegralType(tensor.scalar_type(), false), "not for this dtype");
  TORCH_CHECK(op == ReduceOp::kSum || (op == ReduceOp::kAverage && real), "not by this op");
  const at::NoGradGuard no_grad;
  const at::Tensor own = tensor.detach();
  const c10::MaybeOwned<at::Tensor> row = own.expect_contiguous();
  body(row->view({-1}));
  if (!row->is_same(own)) {
    own.copy_(*row);
  }
}

}  // namespace

void print_in_rank_order(std::string_view message, std::ostream& out,
                         const ProcessGroupPtr& group) {
  TORCH_CHECK(group, "there is no group");
  const int rank = group->getRank();
  const int size = group->getSize();
  const at::Tensor token = at::zeros({}, at::kFloat);
  if (rank + 1 < size) {
    recv(token, rank + 1, group);  // the ranks after this one are ready
  }
  if (rank > 0) {
    send(token, rank - 1, group);
    recv(token, rank - 1, group);
  }
  out << message << '\n' << std::flush;
  if (rank + 1 < size) {
    send(token, rank + 1, group);
  }
}

void ring_reduce_scatter(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  on_row(tensor, group, op, [&](const at::Tensor& row) { reduce(row, group, op); });
}

void ring_all_gather(at::Tensor tensor, const ProcessGroupPtr& group) {
  on_row(tensor, group, ReduceOp::kSum, [&](const at::Tensor& row) { gather(row, group); });
}

void ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  on_row(tensor, group, op, [&](const at::Tensor& row) {
    reduce(row, group, op);
    gather(row, group);
  });
}

}  // namespace ddp
