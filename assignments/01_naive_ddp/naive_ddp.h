#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ddp/collectives.h"
#include "ddp/gradient_synchronizer.h"

namespace ddp {

// Stage 01: naive DDP. Handout: assignments/01_naive_ddp/README.md.
//
// Both forms below share this contract, and that of GradientSynchronizer (gradient ownership,
// NoSync, lifetime).
//
// `parameters` come in the order of torch::nn::Module::parameters(), the same on all ranks. A
// tensor that occurs more than once (tied weights) is handled once. A parameter is trainable if it
// requires a gradient at construction; frozen ones are broadcast like the others, never reduced.
//
// `buffers` are state that is not trained, such as BatchNorm's running statistics: of any shape,
// and any dtype that the group can broadcast, int64 counters among them. They are broadcast at
// construction and not touched afterwards.
//
// `group` is the ranks that train together; the synchronizer keeps it alive.
//
// Construction is collective: afterwards every parameter and buffer holds, bit for bit, what it
// held on rank 0, in the tensor's own storage.
//
// finish() is collective. For every trainable parameter: gradient = sum over ranks of
// parameter.grad() / world size. An undefined gradient counts as zero. All communication of a step
// happens in finish(), none in forward or backward. It is blocking and in one fixed order, the same
// on all ranks, whichever gradients a rank has. Inside a NoSync scope finish() communicates nothing
// and changes nothing.
//
// Errors: c10::Error, before any communication, where this rank's arguments are at fault; where a
// tensor is, the message names its index in `parameters` or `buffers`. At construction: an empty
// list of parameters, an undefined tensor, a trainable parameter that is not a leaf of the autograd
// graph, a null group. In finish(): a sparse gradient. Students validate local arguments only; what
// differs between ranks is for the test harness to find.

/// One blocking all-reduce for each trainable parameter, of exactly its elements in its dtype.
std::unique_ptr<GradientSynchronizer> make_naive_ddp(std::vector<at::Tensor> parameters,
                                                     std::vector<at::Tensor> buffers,
                                                     ProcessGroupPtr group);

/// All gradients flattened, one after the other, into ONE all-reduce a step, of exactly their
/// elements together. All trainable parameters must share one dtype and one device: c10::Error at
/// construction otherwise, with the index of the first that differs from those before it.
std::unique_ptr<GradientSynchronizer> make_flat_ddp(std::vector<at::Tensor> parameters,
                                                    std::vector<at::Tensor> buffers,
                                                    ProcessGroupPtr group);

}  // namespace ddp
