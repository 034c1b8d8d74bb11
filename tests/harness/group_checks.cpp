#include "group_checks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ddp/libtorch_versions.h"
#include "ddp/peers/reducer_peer.h"

namespace ddp::testing {

namespace {

struct Setting {
  ProcessGroupPtr group;
  at::TensorOptions options;  // float64 on the device

  int rank() const { return group->getRank(); }
  int world() const { return group->getSize(); }
  /// 1 + 2 + ... + world
  double sum_of_ranks() const { return world() * (world() + 1) / 2.0; }
  /// This rank's input: its number, counted from 1.
  at::Tensor mine(at::IntArrayRef shape) const { return at::full(shape, rank() + 1.0, options); }
};

// All values are small, so only the rounding of a division by the world size may differ.
void expect_all(const at::Tensor& tensor, double value, const char* what) {
  EXPECT_TRUE(tensor.sub(value).abs().le(1e-14 * std::abs(value)).all().item<bool>())
      << what << ": " << tensor << " expected " << value;
}

void check_reductions(const Setting& s) {
  const at::Tensor sum = s.mine({3, 2});
  all_reduce(sum, s.group);
  expect_all(sum, s.sum_of_ranks(), "sum");

  const at::Tensor average = s.mine({5});
  all_reduce(average, s.group, ReduceOp::kAverage);
  expect_all(average, s.sum_of_ranks() / s.world(), "average");

  const at::Tensor most = s.mine({5});
  all_reduce(most, s.group, ReduceOp::kMax);
  expect_all(most, s.world(), "maximum");

  const at::Tensor integers = s.mine({4}).to(at::kLong);
  all_reduce(integers, s.group);
  expect_all(integers, s.sum_of_ranks(), "integers");
  EXPECT_THROW(all_reduce(integers, s.group, ReduceOp::kAverage), c10::Error);

  const at::Tensor column_major = s.mine({4, 3}).t();
  all_reduce(column_major, s.group);
  expect_all(column_major, s.sum_of_ranks(), "transposed");

  const at::Tensor scalar = s.mine({});
  all_reduce(scalar, s.group);
  expect_all(scalar, s.sum_of_ranks(), "scalar");
}

// Several at once; each is completed in a different way.
void check_async(const Setting& s) {
  const at::Tensor by_wait = s.mine({1000});
  const at::Tensor by_future = s.mine({1000});
  const at::Tensor by_both = s.mine({1000});
  const WorkPtr first = all_reduce_async(by_wait, s.group);
  const WorkPtr second = all_reduce_async(by_future, s.group);
  const WorkPtr third = all_reduce_async(by_both, s.group);
  const auto future = third->getFuture();
  second->getFuture()->wait();
  expect_all(by_future, s.sum_of_ranks(), "by future");
  third->wait();
  future->wait();
  expect_all(by_both, s.sum_of_ranks(), "by both");
  ASSERT_TRUE(future->value().isTensorList());
  EXPECT_TRUE(future->value().toTensorVector().at(0).is_same(by_both)) << "not the caller's tensor";
  first->wait();
  EXPECT_TRUE(first->isCompleted());
  expect_all(by_wait, s.sum_of_ranks(), "by wait");
}

void check_distribution(const Setting& s) {
  const int root = s.world() - 1;
  const at::Tensor copied = s.mine({7});
  broadcast(copied, s.group, root);
  expect_all(copied, root + 1, "broadcast");

  const at::Tensor gathered = all_gather(s.mine({2, 3}), s.group);
  ASSERT_EQ(gathered.sizes(), at::IntArrayRef({s.world(), 2, 3}));
  for (int rank = 0; rank < s.world(); ++rank) {
    expect_all(gathered[rank], rank + 1, "all-gather");
  }
  ASSERT_EQ(all_gather(s.mine({}), s.group).sizes(), at::IntArrayRef({s.world()}));

  at::Tensor input = s.mine({2 * s.world()});
  at::Tensor chunk = at::empty({2}, s.options);
  ((*s.group).*kReduceScatterSingle)(chunk, input, {})->wait();
  expect_all(chunk, s.sum_of_ranks(), "reduce-scatter");
  barrier(s.group);
}

// Every rank sends to the right: blocking sends would never complete.
void check_messages(const Setting& s) {
  if (s.world() == 1) {
    return;
  }
  const int right = (s.rank() + 1) % s.world();
  const int left = (s.rank() + s.world() - 1) % s.world();
  const at::Tensor received = at::empty({6}, s.options);
  const WorkPtr sending = send_async(s.mine({6}), right, s.group, /*tag=*/3);
  recv(received, left, s.group, /*tag=*/3);
  sending->wait();
  expect_all(received, left + 1, "message");
}

void check_reducer(const Setting& s) {
  std::vector<at::Tensor> parameters;
  parameters.reserve(4);
  for (int i = 0; i < 4; ++i) {
    parameters.push_back(at::full({3}, i + 1.0, s.options).set_requires_grad(true));
  }
  ReducerPeer peer(parameters, {}, s.group, {.first_bucket_bytes = 48, .cap_bytes = 48});
  for (int step = 0; step < 3; ++step) {
    peer.before_forward();
    at::Tensor loss = at::zeros({}, s.options);
    for (const at::Tensor& parameter : parameters) {
      parameter.mutable_grad() = at::Tensor();
      loss = loss + (s.rank() + 1.0) * parameter.pow(2).sum();
    }
    peer.before_backward();
    loss.backward();
    for (int i = 0; i < 4; ++i) {  // the mean over ranks of (rank + 1) 2 p
      expect_all(parameters[i].grad(), 2.0 * (i + 1) * s.sum_of_ranks() / s.world(), "gradient");
    }
  }
}

}  // namespace

void check_group(const ProcessGroupPtr& group, const at::Device& device) {
  const Setting setting{group, at::TensorOptions(at::kDouble).device(device)};
  check_reductions(setting);
  check_async(setting);
  check_distribution(setting);
  check_messages(setting);
  check_reducer(setting);
}

}  // namespace ddp::testing
