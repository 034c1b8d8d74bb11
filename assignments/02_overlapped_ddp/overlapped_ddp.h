#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ddp/collectives.h"
#include "ddp/gradient_synchronizer.h"

namespace ddp {

// Stage 02: overlapped DDP. Handout: assignments/02_overlapped_ddp/README.md.
//
// The arguments, the broadcast at construction and the errors are those of stage 01
// (01_naive_ddp/naive_ddp.h). For gradient ownership, NoSync and lifetime see GradientSynchronizer.

/// One asynchronous all-reduce for each trainable parameter, launched by its on_gradient_ready hook
/// (ddp/gradient_hooks.h) as soon as the gradient is accumulated, before backward goes on to the
/// next.
///
/// Construction is collective: it broadcasts rank 0's parameters and buffers, bit for bit.
///
/// backward communicates. From its launch to the end of finish() a gradient is in flight, and
/// nothing may read or write it. Nothing waits inside backward. Launches happen in the order in
/// which gradients become ready, so all ranks must produce the same gradients in the same order.
/// Ranks that take different branches are outside this contract (stage 03 handles them).
///
/// finish() is collective. It waits for every launch of this step. Then gradient = sum over ranks /
/// world size, after exactly one all-reduce for each parameter that a backward of this step has
/// reached; a tied weight is one parameter.
///
/// NoSync: inside the scope hooks launch nothing. The first backward outside it launches the
/// gradients that it accumulates into. Gradients accumulated only inside the scope are launched by
/// finish(), in the order of `parameters`. At most one backward outside NoSync may run between two
/// calls of finish(), because a second would add to gradients in flight: its hook throws
/// c10::Error, and so does backward(). (One for other gradients alone, or inside NoSync, need not be
/// noticed.)
///
/// A sparse gradient is refused where it would be sent, by its hook; one that was accumulated inside
/// NoSync, by its hook there or by finish(). Others may be in flight by then.
///
/// Destruction removes the hooks: a later backward communicates nothing.
std::unique_ptr<GradientSynchronizer> make_overlapped_ddp(std::vector<at::Tensor> parameters,
                                                          std::vector<at::Tensor> buffers,
                                                          ProcessGroupPtr group);

}  // namespace ddp
