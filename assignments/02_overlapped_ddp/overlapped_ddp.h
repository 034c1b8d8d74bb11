#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ddp/collectives.h"
#include "ddp/gradient_synchronizer.h"

namespace ddp {

// Stage 02: overlapped DDP. Handout: assignments/02_overlapped_ddp/README.md.
//
// parameters, buffers, group, the broadcast of rank 0's parameters and buffers at construction, and
// the errors are those of stage 01 (01_naive_ddp/naive_ddp.h). Gradient ownership, NoSync and
// lifetime: GradientSynchronizer.

/// One asynchronous all-reduce for each trainable parameter, launched by its on_gradient_ready hook
/// (ddp/gradient_hooks.h) the moment the gradient is accumulated, before backward goes on to the
/// next.
///
/// Construction is collective: it broadcasts rank 0's parameters and buffers, bit for bit.
///
/// backward communicates: from the launch to the end of finish() a gradient is in flight, and
/// nothing may read or write it. Nothing waits inside backward. The order of launches is the order
/// in which gradients become ready, so all ranks must produce the same gradients in the same order:
/// ranks whose backward takes another branch are outside this contract (they are stage 03's
/// lesson).
///
/// finish() is collective. It waits for every launch of this step, then gradient = sum over ranks /
/// world size, with exactly one all-reduce a step for each parameter that has a gradient, tied
/// weights among them. finish() twice, or without a backward, does no harm.
///
/// NoSync: inside the scope hooks launch nothing. The first backward outside launches what it
/// accumulates into, and finish() itself launches, in the order of `parameters`, gradients that
/// were accumulated inside the scope only. At most one backward outside NoSync may run between two
/// calls of finish(): a second would add to gradients in flight. It throws c10::Error out of
/// backward.
///
/// Destruction removes the hooks: a later backward communicates nothing.
std::unique_ptr<GradientSynchronizer> make_overlapped_ddp(std::vector<at::Tensor> parameters,
                                                          std::vector<at::Tensor> buffers,
                                                          ProcessGroupPtr group);

}  // namespace ddp
