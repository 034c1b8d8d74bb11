#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace ddp {

/// Told of computing that is only simulated: how many nanoseconds it takes, and what it is, such as
/// "forward fc1".
using ComputeListener = std::function<void(std::int64_t ns, const std::string& name)>;

/// Simulates a layer whose forward takes `forward_ns` and whose backward takes `backward_ns`:
/// returns the values of `x`, and tells the listener at once, and again during backward, just before
/// the gradient of `x` is passed on.
///
/// Apply it to the output of a layer. Then the listener hears of the layer's backward before the
/// gradients of its parameters are accumulated. If `x` requires no gradient, backward takes no time.
/// Without a listener it does nothing.
inline at::Tensor simulated_compute(const at::Tensor& x, const ComputeListener& listener,
                                    std::int64_t forward_ns, std::int64_t backward_ns,
                                    const std::string& layer = "") {
  if (!listener) {
    return x;
  }
  const std::string of_layer = layer.empty() ? "" : " " + layer;
  listener(forward_ns, "forward" + of_layer);
  // A new view, so that the hook dies with this step's graph even if `x` is a leaf.
  at::Tensor y = x.view_as(x);
  if (y.requires_grad()) {
    y.register_hook([listener, backward_ns, name = "backward" + of_layer](const at::Tensor&) {
      listener(backward_ns, name);
    });
  }
  return y;
}

}  // namespace ddp
