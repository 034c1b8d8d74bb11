#include "ddp/virtual_clock.h"

#include <ATen/ATen.h>

namespace ddp {

void VirtualClock::advance_to(std::int64_t ns) {
  std::int64_t seen = now_;
  while (seen < ns && !now_.compare_exchange_weak(seen, ns)) {
  }
}

at::Tensor simulated_compute(const at::Tensor& x, const std::shared_ptr<VirtualClock>& clock,
                             std::int64_t forward_ns, std::int64_t backward_ns) {
  if (!clock) {
    return x;
  }
  clock->advance(forward_ns);
  // A view of its own, so that the hook dies with this step's graph even where `x` is a leaf.
  at::Tensor y = x.view_as(x);
  if (y.requires_grad()) {
    y.register_hook([clock, backward_ns](const at::Tensor&) { clock->advance(backward_ns); });
  }
  return y;
}

}  // namespace ddp
