#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ddp/collectives.h"
#include "ddp/gradient_synchronizer.h"

namespace ddp {

/// The plan of PyTorch's published Python DDP: parameters are visited in FORWARD order, and a buffer
/// never holds more than `buffer_elements`. So the first layers, whose gradients come last, fill a
/// whole buffer. Returns indices into `parameters`, buffer by buffer.
///
/// Throws c10::Error, which names the index, for a parameter that is frozen, has as many elements as a
/// buffer, or differs in dtype or device from the first: so do the original's assertions.
std::vector<std::vector<std::size_t>> python_ddp_plan(const std::vector<at::Tensor>& parameters,
                                                      std::int64_t buffer_elements);

struct PythonDdpOptions {
  /// What a buffer holds at most, in elements; the original's default.
  std::int64_t buffer_elements = std::int64_t{1} << 22;
  /// A buffer is all-reduced as soon as it is full; otherwise all are in finish(), blocking, one
  /// after the other.
  bool async_reduction = true;
};

/// A baseline of stage 03: a port of PythonDDP, as in PyTorch's benchmarks/distributed/ddp/compare,
/// whose measurements were published. Gradients are copied into their buffer, divided there, and
/// copied out of it in finish(), the original's all_reduce_grads(). Like the original it broadcasts
/// nothing, and every parameter must get a gradient in every backward.
std::unique_ptr<GradientSynchronizer> make_python_ddp_baseline(
    const std::vector<at::Tensor>& parameters, const ProcessGroupPtr& group,
    const PythonDdpOptions& options = {});

}  // namespace ddp
