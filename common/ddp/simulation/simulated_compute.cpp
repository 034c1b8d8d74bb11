#include "ddp/simulation/simulated_compute.h"

#include <ATen/ATen.h>

namespace ddp {

at::Tensor simulated_compute(const at::Tensor& x, const ComputeListener& listener,
                             std::int64_t forward_ns, std::int64_t backward_ns,
                             const std::string& layer) {
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
