#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ddp/collectives.h"
#include "ddp/gradient_synchronizer.h"

namespace ddp {

// Stage 01: naive DDP. Handout: assignments/01_naive_ddp/README.md.
//
// Both forms below share this contract and that of GradientSynchronizer (gradient ownership,
// NoSync, lifetime).
//
// `parameters`: in the order of torch::nn::Module::parameters(), the same on all ranks. A tensor
// that is listed more than once (tied weights) is handled once: one all-reduce, one division. (Its
// broadcast may be repeated.) What counts is whether it is the same tensor, not equal values or the
// same memory. A parameter is trainable if it requires a gradient at construction; it is then
// float32, float64, half or bfloat16, and keeps its dtype. Frozen ones are broadcast like the
// others, never reduced; their gradients are left alone.
//
// `buffers`: state that is not trained, such as BatchNorm's running statistics. They may have any
// shape and any dtype that the group can broadcast, such as int64 counters. They are broadcast at
// construction and not touched afterwards.
//
// `group`: the ranks that train together. The synchronizer keeps it alive.
//
// Construction is collective. Afterwards every parameter and buffer holds rank 0's values, bit for
// bit, in its own storage.
//
// finish() is collective. For every trainable parameter: gradient = sum over ranks of
// parameter.grad() / world size. An undefined gradient counts as zero. All communication of a step
// happens in finish(), none in forward or backward. finish() returns when all of it is done; its
// all-reduces may be in flight together. They run in one fixed order that is the same on all ranks,
// whichever gradients a rank has. Inside a NoSync scope finish() does nothing.
//
// Errors are c10::Error, thrown before any communication. If a tensor is at fault, the message
// names its index in `parameters` or `buffers`. At construction: an empty list of parameters, an
// undefined tensor, a trainable parameter that is not a leaf of the autograd graph, a null group.
// In finish(): a sparse gradient of a trainable parameter. Check only what this rank can see: you
// need not detect that ranks differ.

/// One all-reduce for each trainable parameter, of exactly its elements in its dtype.
std::unique_ptr<GradientSynchronizer> make_naive_ddp(std::vector<at::Tensor> parameters,
                                                     std::vector<at::Tensor> buffers,
                                                     ProcessGroupPtr group);

/// All gradients flattened, one after the other, into ONE all-reduce per step, of exactly all their
/// elements. All trainable parameters must share one dtype and one device. Otherwise construction
/// throws c10::Error with the index of the first that differs from those before it.
std::unique_ptr<GradientSynchronizer> make_flat_ddp(std::vector<at::Tensor> parameters,
                                                    std::vector<at::Tensor> buffers,
                                                    ProcessGroupPtr group);

}  // namespace ddp
