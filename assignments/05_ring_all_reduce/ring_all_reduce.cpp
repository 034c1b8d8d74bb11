#include "05_ring_all_reduce/ring_all_reduce.h"

#include <c10/util/Exception.h>

namespace ddp {

// Writes this rank's message to `out` when its turn has come, and passes the turn on.
// Throws c10::Error if the group is null or communication fails.
// Read on: README.md beside this file, "Interface"; ddp/collectives.h (send, recv).
void print_in_rank_order(std::string_view message, std::ostream& out,
                         const ProcessGroupPtr& group) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 05 ring all-reduce: print_in_rank_order");
}

// In place: rank r ends with chunk r of the flattened tensor (balanced split, in elements) summed
// or averaged.
// Throws c10::Error before any message for bad arguments: see the header.
// Read on: README.md, "The idea" (Reduce-scatter); ddp/balanced_split.h; send_async and recv_async in
// ddp/collectives.h.
void ring_reduce_scatter(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 05 ring all-reduce: ring_reduce_scatter");
}

// In place: rank r contributes chunk r of the flattened tensor; all ranks end with all chunks.
// Throws c10::Error before any message for bad arguments: see the header.
// Read on: README.md, "The idea" (All-gather).
void ring_all_gather(at::Tensor tensor, const ProcessGroupPtr& group) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 05 ring all-reduce: ring_all_gather");
}

// In place: the tensor becomes its sum or average over all ranks.
// Throws c10::Error before any message for bad arguments: see the header.
// Read on: README.md, "The idea" and "Cost model".
void ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 05 ring all-reduce: ring_all_reduce");
}

}  // namespace ddp
