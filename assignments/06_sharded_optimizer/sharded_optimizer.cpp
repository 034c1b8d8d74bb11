#include "06_sharded_optimizer/sharded_optimizer.h"

#include <c10/util/Exception.h>

namespace ddp {

// Broadcasts rank 0's parameters and buffers, and returns an optimizer that keeps of each bucket one
// N-th: a flat shard, its gradient (a reduce-scatter in backward) and the state of an optimizer that
// `make_optimizer` makes; step() gathers the shards back into the parameters.
//
// Throws c10::Error, with the index, for bad arguments: see the header.
//
// Read on: README.md, "The idea"; plan_buckets in ddp/plans/bucket_plan.h; on_gradient_ready in
// ddp/gradient_hooks.h; reduce_scatter_async and all_gather_async in ddp/collectives.h.
std::unique_ptr<ShardedOptimizer> make_sharded_optimizer(std::vector<at::Tensor> parameters,
                                                         std::vector<at::Tensor> buffers,
                                                         ProcessGroupPtr group,
                                                         OptimizerFactory make_optimizer,
                                                         const ShardedOptimizerOptions& options) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 06 sharded optimizer: make_sharded_optimizer");
}

}  // namespace ddp
