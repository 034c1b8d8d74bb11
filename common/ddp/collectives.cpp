#include "ddp/collectives.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "ddp/internal/call_checks.h"
#include "ddp/libtorch_versions.h"

namespace ddp {
namespace {

c10d::ReduceOp to_c10d(const char* caller, ReduceOp op, const at::Tensor& tensor) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAverage:
      TORCH_CHECK(tensor.is_floating_point(), caller, ": an average needs floating point, got ",
                  tensor.scalar_type(), ": sum and divide instead");
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
  }
  TORCH_CHECK(false, caller, ": unknown ReduceOp ", static_cast<int>(op));
}

void check_chunks(const char* caller, const at::Tensor& all, const at::Tensor& chunk, int ranks) {
  check_defined(caller, all);
  check_defined(caller, chunk);
  TORCH_CHECK(all.numel() == chunk.numel() * ranks, caller, ": a tensor of ", all.numel(),
              " elements is not ", ranks, " chunks of ", chunk.numel(),
              ", one for each rank; pad it to a multiple of the world size");
}

}  // namespace

void all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  all_reduce_async(std::move(tensor), group, op)->wait();
}

WorkPtr all_reduce_async(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check_defined("all_reduce", tensor);
  c10d::AllreduceOptions options;
  options.reduceOp = to_c10d("all_reduce", op, tensor);
  std::vector<at::Tensor> tensors{std::move(tensor)};
  return group->allreduce(tensors, options);
}

void broadcast(at::Tensor tensor, const ProcessGroupPtr& group, int root) {
  check_defined("broadcast", tensor);
  check_member("broadcast", root, group->getSize());
  c10d::BroadcastOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> tensors{std::move(tensor)};
  group->broadcast(tensors, options)->wait();
}

void send(at::Tensor tensor, int peer, const ProcessGroupPtr& group, int tag) {
  send_async(std::move(tensor), peer, group, tag)->wait();
}

void recv(at::Tensor tensor, int peer, const ProcessGroupPtr& group, int tag) {
  recv_async(std::move(tensor), peer, group, tag)->wait();
}

WorkPtr send_async(at::Tensor tensor, int peer, const ProcessGroupPtr& group, int tag) {
  check_defined("send", tensor);
  check_partner("send", peer, group->getRank(), group->getSize());
  std::vector<at::Tensor> tensors{std::move(tensor)};
  return group->send(tensors, peer, tag);
}

WorkPtr recv_async(at::Tensor tensor, int peer, const ProcessGroupPtr& group, int tag) {
  check_defined("recv", tensor);
  check_partner("recv", peer, group->getRank(), group->getSize());
  std::vector<at::Tensor> tensors{std::move(tensor)};
  return group->recv(tensors, peer, tag);
}

at::Tensor all_gather(const at::Tensor& input, const ProcessGroupPtr& group) {
  check_defined("all_gather", input);
  // Backends gather along the first dimension, so inputs are sent flat and the result is reshaped.
  at::Tensor flat = input.contiguous().view({-1});
  at::Tensor gathered = at::empty({group->getSize() * flat.numel()}, flat.options());
  ((*group).*kAllGatherSingle)(gathered, flat, {})->wait();
  std::vector<std::int64_t> shape{group->getSize()};
  shape.insert(shape.end(), input.sizes().begin(), input.sizes().end());
  return gathered.view(shape);
}

WorkPtr reduce_scatter_async(at::Tensor output, at::Tensor input, const ProcessGroupPtr& group,
                             ReduceOp op) {
  check_chunks("reduce_scatter", input, output, group->getSize());
  c10d::ReduceScatterOptions options;
  options.reduceOp = to_c10d("reduce_scatter", op, input);
  return ((*group).*kReduceScatterSingle)(output, input, options);
}

WorkPtr all_gather_async(at::Tensor output, at::Tensor input, const ProcessGroupPtr& group) {
  check_chunks("all_gather", output, input, group->getSize());
  return ((*group).*kAllGatherSingle)(output, input, {});
}

void barrier(const ProcessGroupPtr& group) { group->barrier()->wait(); }

}  // namespace ddp
