#include "ddp/butterfly.h"

#include <ATen/ATen.h>

#include <vector>

#include "ddp/balanced_split.h"

namespace ddp {
namespace {

void wait_for_all(std::vector<WorkPtr>& running) {
  for (const auto& work : running) {
    work->wait();
  }
  running.clear();
}

void check_arguments(const at::Tensor& tensor, const ProcessGroupPtr& group, ReduceOp op) {
  TORCH_CHECK(tensor.defined(), "butterfly_all_reduce: the tensor is undefined");
  TORCH_CHECK(group, "butterfly_all_reduce: the process group is null");
  TORCH_CHECK(op == ReduceOp::kSum || op == ReduceOp::kAverage,
              "butterfly_all_reduce: the operation must be a sum or an average");
  TORCH_CHECK(op == ReduceOp::kSum || tensor.is_floating_point(),
              "butterfly_all_reduce: an average of ", tensor.scalar_type(), " is not defined");
}

}  // namespace

void butterfly_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check_arguments(tensor, group, op);
  const at::NoGradGuard no_grad;
  const int rank = group->getRank();
  const int world_size = group->getSize();
  const at::Tensor contiguous = tensor.contiguous();  // the tensor itself where it is contiguous
  const at::Tensor flat = contiguous.view({-1});
  const std::vector<Chunk> chunks = balanced_split(flat.numel(), world_size);
  const auto chunk_of = [&](int owner) {
    return flat.narrow(0, chunks[owner].begin, chunks[owner].size);
  };

  // Reduce-scatter: chunk p goes to rank p, and my own comes in from everybody.
  const at::Tensor mine = chunk_of(rank);
  const at::Tensor received = at::empty({world_size, mine.numel()}, flat.options());
  std::vector<WorkPtr> running;
  for (int peer = 0; peer < world_size; ++peer) {
    if (peer == rank) {
      continue;
    }
    running.push_back(recv_async(received[peer], peer, group));
    running.push_back(send_async(chunk_of(peer), peer, group));
  }
  wait_for_all(running);
  received[rank].copy_(mine);
  mine.zero_();
  for (int peer = 0; peer < world_size; ++peer) {
    mine.add_(received[peer]);
  }
  if (op == ReduceOp::kAverage) {
    mine.div_(world_size);
  }

  // All-gather: my sum goes to everybody, and theirs come in.
  for (int peer = 0; peer < world_size; ++peer) {
    if (peer == rank) {
      continue;
    }
    running.push_back(recv_async(chunk_of(peer), peer, group));
    running.push_back(send_async(mine, peer, group));
  }
  wait_for_all(running);
  if (!contiguous.is_same(tensor)) {
    tensor.copy_(contiguous);
  }
}

}  // namespace ddp
