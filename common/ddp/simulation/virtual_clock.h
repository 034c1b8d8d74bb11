#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace ddp {

class Timeline;

/// The time of one rank, in integer nanoseconds that pass only on request. Timing tests compare
/// such times with a formula, to the nanosecond, on any machine.
class VirtualClock {
 public:
  std::int64_t now() const { return now_; }
  void advance(std::int64_t ns) { now_ += ns; }

  /// Advances to `ns`; does nothing if the clock is already past it.
  void advance_to(std::int64_t ns);

  void reset() { now_ = 0; }

  /// Advances by `ns` of computing, which is drawn under `name` if there is a timeline.
  void compute(std::int64_t ns, const std::string& name);
  void draw_on(std::shared_ptr<Timeline> timeline) { timeline_ = std::move(timeline); }

 private:
  // Autograd and communication may run on threads of their own.
  std::atomic<std::int64_t> now_ = 0;
  std::shared_ptr<Timeline> timeline_;
};

/// Simulates a layer whose forward takes `forward_ns` and whose backward takes `backward_ns`:
/// returns the values of `x`, and advances the clock at once, and again during backward, just
/// before the gradient of `x` is passed on.
///
/// Apply it to the output of a layer. Then the clock includes the layer's backward before the
/// gradients of its parameters are accumulated. If `x` requires no gradient, backward takes no
/// time. Without a clock it does nothing. A timeline shows "forward" and "backward" of `layer`.
at::Tensor simulated_compute(const at::Tensor& x, const std::shared_ptr<VirtualClock>& clock,
                             std::int64_t forward_ns, std::int64_t backward_ns,
                             const std::string& layer = "");

}  // namespace ddp
