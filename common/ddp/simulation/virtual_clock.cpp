#include "ddp/simulation/virtual_clock.h"

#include <ATen/ATen.h>

#include "ddp/simulation/timeline.h"

namespace ddp {

void VirtualClock::advance_to(std::int64_t ns) {
  std::int64_t seen = now_;
  while (seen < ns && !now_.compare_exchange_weak(seen, ns)) {
  }
}

void VirtualClock::compute(std::int64_t ns, const std::string& name) {
  const std::int64_t begin = now_.fetch_add(ns);
  if (timeline_ && ns > 0) {
    timeline_->add(SpanKind::kCompute, name, begin, begin + ns);
  }
}

at::Tensor simulated_compute(const at::Tensor& x, const std::shared_ptr<VirtualClock>& clock,
                             std::int64_t forward_ns, std::int64_t backward_ns,
                             const std::string& layer) {
  if (!clock) {
    return x;
  }
  const std::string of_layer = layer.empty() ? "" : " " + layer;
  clock->compute(forward_ns, "forward" + of_layer);
  // A new view, so that the hook dies with this step's graph even if `x` is a leaf.
  at::Tensor y = x.view_as(x);
  if (y.requires_grad()) {
    y.register_hook([clock, backward_ns, name = "backward" + of_layer](const at::Tensor&) {
      clock->compute(backward_ns, name);
    });
  }
  return y;
}

}  // namespace ddp
