#include "03_bucketed_ddp/bucketed_ddp.h"

#include <c10/util/Exception.h>

namespace ddp {

// The plan: indices into `parameters`, bucket by bucket. Sizes are in bytes. Pure: it allocates no
// tensors and does not communicate.
// Throws c10::Error if cap_bytes <= 0, the list is empty, or a parameter is undefined or no leaf.
//
// Read on: the rules and the example in the header; README.md, "The idea" (The plan).
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<at::Tensor>& parameters,
                                                     std::int64_t cap_bytes) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 03 bucketed DDP: assign_buckets");
}

// Broadcasts rank 0's parameters and buffers, and returns a synchronizer that reduces one flat
// tensor per bucket, launched in plan order when its last gradient is ready, or in finish().
//
// Throws c10::Error, with the index, for bad arguments: see the header.
//
// Read on: README.md, "The idea" (Execution); on_gradient_ready in ddp/gradient_hooks.h;
// all_reduce_async in ddp/collectives.h.
std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(std::vector<at::Tensor> parameters,
                                                        std::vector<at::Tensor> buffers,
                                                        ProcessGroupPtr group,
                                                        const BucketedDdpOptions& options) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 03 bucketed DDP: make_bucketed_ddp");
}

}  // namespace ddp
