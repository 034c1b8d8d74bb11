#include "01_naive_ddp/naive_ddp.h"

#include <c10/util/Exception.h>

namespace ddp {

// Broadcasts rank 0's parameters and buffers, and returns a synchronizer whose finish() runs one
// all-reduce for each trainable parameter and leaves the mean over ranks in its gradient.
//
// Parameters may have any shape. A gradient has its parameter's shape and dtype.
// Throws c10::Error, with the index, for bad arguments: see "Errors" in the header.
//
// Read on: README.md beside this file; ddp/collectives.h (broadcast, all_reduce).
// The usual way: a class of your own, in this file, derived from GradientSynchronizer.
std::unique_ptr<GradientSynchronizer> make_naive_ddp(std::vector<at::Tensor> parameters,
                                                     std::vector<at::Tensor> buffers,
                                                     ProcessGroupPtr group) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 01 naive DDP: make_naive_ddp");
}

// The same, with all gradients in one flat tensor of sum(numel) elements and one all-reduce for it.
//
// Also throws c10::Error if trainable parameters differ in dtype or device.
//
// Read on: README.md, "Interface" and "Cost model".
std::unique_ptr<GradientSynchronizer> make_flat_ddp(std::vector<at::Tensor> parameters,
                                                    std::vector<at::Tensor> buffers,
                                                    ProcessGroupPtr group) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 01 naive DDP: make_flat_ddp");
}

}  // namespace ddp
