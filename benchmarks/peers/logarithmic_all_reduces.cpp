#include "peers/logarithmic_all_reduces.h"

#include <ATen/ATen.h>

#include <bit>
#include <functional>

#include "peers/check_reduction.h"

namespace ddp {
namespace {

/// A rank's contiguous partial sum, and its operations with those of others.
class Sum {
 public:
  Sum(const at::Tensor& tensor, ProcessGroupPtr group)
      : sum_(tensor), received_(at::empty_like(tensor)), group_(std::move(group)) {}

  int rank() const { return group_->getRank(); }
  int size() const { return group_->getSize(); }

  void send_to(int peer) const { send(sum_, peer, group_); }
  void replace_by_that_of(int peer) const { recv(sum_, peer, group_); }

  void add_that_of(int peer) const {
    recv(received_, peer, group_);
    sum_.add_(received_);
  }

  /// Both ends then have the same bits: a + b equals b + a.
  void exchange_with(int peer) const {
    const WorkPtr receiving = recv_async(received_, peer, group_);
    send(sum_, peer, group_);
    receiving->wait();
    sum_.add_(received_);
  }

  void finish(ReduceOp op) const {
    if (op == ReduceOp::kAverage) {
      sum_.div_(size());
    }
  }

 private:
  at::Tensor sum_, received_;
  ProcessGroupPtr group_;
};

void recursive_doubling(const Sum& sum, ReduceOp op) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(sum.size())));
  const int pairs = sum.size() - power;  // ranks 0 and 1, 2 and 3 ...: each pair counts as one rank
  const int rank = sum.rank();
  const bool paired = rank < 2 * pairs;
  if (paired && rank % 2 == 0) {
    sum.send_to(rank + 1);
    sum.replace_by_that_of(rank + 1);
    return;
  }
  if (paired) {
    sum.add_that_of(rank - 1);
  }
  const int number = paired ? rank / 2 : rank - pairs;  // among the doubling ranks
  for (int distance = 1; distance < power; distance *= 2) {
    const int peer = number ^ distance;
    sum.exchange_with(peer < pairs ? 2 * peer + 1 : peer + pairs);
  }
  sum.finish(op);
  if (paired) {
    sum.send_to(rank - 1);
  }
}

void tree(const Sum& sum, ReduceOp op) {
  const int rank = sum.rank();
  // A rank's parent has its lowest bit cleared; each child has one more lower bit set.
  const int lowest =
      rank == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(sum.size()))) : rank & -rank;
  for (int bit = 1; bit < lowest; bit *= 2) {
    if (rank + bit < sum.size()) {
      sum.add_that_of(rank + bit);
    }
  }
  if (rank == 0) {
    sum.finish(op);
  } else {
    sum.send_to(rank - lowest);
    sum.replace_by_that_of(rank - lowest);
  }
  for (int bit = lowest / 2; bit > 0; bit /= 2) {  // the child with the largest subtree first
    if (rank + bit < sum.size()) {
      sum.send_to(rank + bit);
    }
  }
}

void in_place(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& reduce) {
  const at::NoGradGuard no_grad;
  const at::Tensor contiguous = tensor.contiguous();  // the tensor itself where it is contiguous
  reduce(contiguous);
  if (!contiguous.is_same(tensor)) {
    tensor.copy_(contiguous);
  }
}

}  // namespace

void recursive_doubling_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check_reduction("recursive_doubling_all_reduce", tensor, group, op);
  in_place(tensor, [&](const at::Tensor& whole) { recursive_doubling(Sum(whole, group), op); });
}

void tree_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check_reduction("tree_all_reduce", tensor, group, op);
  in_place(tensor, [&](const at::Tensor& whole) { tree(Sum(whole, group), op); });
}

}  // namespace ddp
