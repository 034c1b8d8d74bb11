#include "baselines/all_reduces.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstdio>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "baselines/butterfly.h"

namespace ddp {
namespace {

// Two all-reduces in about log2 N steps of point-to-point messages, each of the whole tensor: baselines
// of stage 05's ring, which needs 2(N-1) steps with an N-th of it. N is the world size, which may
// be any; a message of all S bytes takes alpha + S beta. Source: Thakur, Rabenseifner, Gropp,
// "Optimization of Collective Communication Operations in MPICH", 2005.
//
// Both replace `tensor` in place, in its own storage; any shape, contiguous or not. Collective.
// Sums are formed in the tensor's dtype, pairwise; the result is bitwise equal on all ranks. A rank
// needs additional memory of the tensor's size. They throw c10::Error before any message: an
// undefined tensor, a null group, an op that is neither sum nor average, an average of integers.

// A rank's contiguous partial sum, and its operations with those of others.
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

  // Both ends then have the same bits: a + b equals b + a.
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

// In step k rank r exchanges its sum so far with rank r XOR 2^k, and both add: after log2 N steps
// every rank has the whole sum.
//
//     time = (log2 N)             (alpha + S beta)    where N is a power of two
//            (floor(log2 N) + 2)  (alpha + S beta)    otherwise
//
// Otherwise the first 2(N-P) ranks, where P is the largest power of two below N, form pairs: the
// even rank hands its tensor to the odd one first, and receives the result at the end.
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

// A binomial tree with rank 0 as its root: sums go up (reduce), the result comes down (broadcast).
//
//     time = 2 ceil(log2 N) (alpha + S beta)
//
// The fewest messages of all, 2(N-1) in the whole network; but most ranks wait most of the time.
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

template <void (*reduce)(const Sum&, ReduceOp)>
void in_place(const at::Tensor& tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check_reduction("all-reduce", tensor, group, op);
  const at::NoGradGuard no_grad;
  const at::Tensor contiguous = tensor.contiguous();  // the tensor itself where it is contiguous
  reduce(Sum(contiguous, group), op);
  if (!contiguous.is_same(tensor)) {
    tensor.copy_(contiguous);
  }
}

using Group = ProcessGroupPtr;

// The stage's functions are called, not pointed to: their addresses are unknown until the library
// is loaded.
constexpr AllReduce kAll[] = {
    {.name = kRing,
     .run = [](const at::Tensor& t, const Group& g, ReduceOp op) { ring_all_reduce(t, g, op); }},
    {.name = "butterfly",
     .run = [](const at::Tensor& t, const Group& g,
               ReduceOp op) { butterfly_all_reduce(t, g, op); }},
    {.name = "recursive doubling", .run = in_place<recursive_doubling>},
    {.name = "tree", .run = in_place<tree>},
    {.name = "all_reduce",
     .run = [](const at::Tensor& t, const Group& g, ReduceOp op) { all_reduce(t, g, op); }},
};

void expect_sum(const std::string& name, const at::Tensor& tensor, const at::Tensor& expected,
                int ranks) {
  TORCH_CHECK(tensor.eq(expected).all().item<bool>(), "the sum of ", name, " over ", ranks,
              " ranks is wrong for ", tensor.numel(),
              " elements, so there is no point in measuring it; `make test STAGE=05` says more");
}

void expect_right_sum(const AllReduce& one, const at::Device& device, const Group& group) {
  const int ranks = group->getSize();
  const at::Tensor tensor = at::arange(3 * ranks + 1, at::device(device).dtype(at::kFloat));
  const at::Tensor sum = tensor * ranks;
  one.run(tensor, group, ReduceOp::kSum);
  expect_sum(one.name, tensor, sum, ranks);
}

}  // namespace

void expect_sum_of_ones(const std::string& name, const at::Tensor& tensor, int ranks) {
  expect_sum(name, tensor, at::full({}, ranks, tensor.options()), ranks);
}

const AllReduce& all_reduce_named(const std::string& name) {
  const auto found =
      std::ranges::find_if(kAll, [&](const AllReduce& one) { return one.name == name; });
  TORCH_CHECK_VALUE(found != std::end(kAll), "there is no all-reduce \"", name, "\"");
  return *found;
}

std::vector<AllReduce> usable_all_reduces(const std::vector<std::string>& names,
                                          const at::Device& device, const ProcessGroupPtr& group) {
  std::vector<AllReduce> usable;
  for (const std::string& name : names) {
    usable.push_back(all_reduce_named(name));
    expect_right_sum(usable.back(), device, group);
  }
  return usable;
}

}  // namespace ddp
