#include "baselines/butterfly.h"

#include <ATen/ATen.h>

#include <vector>

#include "ddp/balanced_split.h"
#include "ddp/internal/call_checks.h"

namespace ddp {
namespace {

void wait_for_all(std::vector<WorkPtr>& running) {
  for (const auto& work : running) {
    work->wait();
  }
  running.clear();
}

}  // namespace

void check_reduction(const char* call, const at::Tensor& tensor, const ProcessGroupPtr& group,
                     ReduceOp op) {
  check_defined(call, tensor);
  TORCH_CHECK(group, call, ": the process group is null");
  TORCH_CHECK(op == ReduceOp::kSum || op == ReduceOp::kAverage, call,
              ": the operation must be a sum or an average");
  TORCH_CHECK(op == ReduceOp::kSum || tensor.is_floating_point(), call, ": an average of ",
              tensor.scalar_type(), " is not defined");
}

void butterfly_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check_reduction("butterfly_all_reduce", tensor, group, op);
  const at::NoGradGuard no_grad;
  const int rank = group->getRank();
  const int world_size = group->getSize();
  const at::Tensor contiguous = tensor.contiguous();  // the tensor itself where it is contiguous
  const at::Tensor flat = contiguous.view({-1});
  const std::vector<Chunk> chunks = balanced_split(flat.numel(), world_size);
  const auto chunk_of = [&](int owner) {
    return flat.narrow(0, chunks[owner].begin, chunks[owner].size);
  };

  // Each rank begins with a different peer: in step s rank r sends to r + s and receives from r -
  // s. If all began with rank 0, they would wait for its one port.
  const auto right = [&](int step) { return (rank + step) % world_size; };
  const auto left = [&](int step) { return (rank - step + world_size) % world_size; };

  // Reduce-scatter: chunk p goes to rank p, and my own comes in from all others.
  const at::Tensor mine = chunk_of(rank);
  const at::Tensor received = at::empty({world_size, mine.numel()}, flat.options());
  std::vector<WorkPtr> running;
  for (int step = 1; step < world_size; ++step) {
    running.push_back(recv_async(received[left(step)], left(step), group));
    running.push_back(send_async(chunk_of(right(step)), right(step), group));
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

  // All-gather: my sum goes to all others, and theirs come in.
  for (int step = 1; step < world_size; ++step) {
    running.push_back(recv_async(chunk_of(left(step)), left(step), group));
    running.push_back(send_async(mine, right(step), group));
  }
  wait_for_all(running);
  if (!contiguous.is_same(tensor)) {
    tensor.copy_(contiguous);
  }
}

}  // namespace ddp
