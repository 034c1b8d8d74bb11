#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace ddp {

using GradientReadyFunction = std::function<void(const at::Tensor& parameter)>;

/// Keeps a registration of on_gradient_ready() alive; destruction ends it. It may outlive the
/// parameter.
class GradientHook {
 public:
  GradientHook() = default;
  GradientHook(const GradientHook&) = delete;
  GradientHook& operator=(const GradientHook&) = delete;
  GradientHook(GradientHook&&) noexcept = default;
  GradientHook& operator=(GradientHook&&) noexcept = default;
  ~GradientHook() = default;

 private:
  friend GradientHook on_gradient_ready(const at::Tensor&, GradientReadyFunction);
  explicit GradientHook(std::shared_ptr<GradientReadyFunction> function)
      : function_(std::move(function)) {}
  std::shared_ptr<GradientReadyFunction> function_;
};

/// Calls `function(parameter)` in every backward, right after the parameter's gradient has been
/// accumulated: `parameter.grad()` is then complete for this backward. The reference is good for
/// the call only: copy the tensor to keep it. A parameter that is used several times (tied weights)
/// is accumulated once, after all its uses; one that the loss does not depend on is not accumulated
/// at all.
///
/// The functions registered on a parameter are called in the order of registration. They run on the
/// thread of backward; an exception leaves backward().
///
/// `parameter` must be a leaf that requires a gradient. Throws c10::Error if it is not, or if
/// libtorch's own hook is already in use on it: libtorch has one slot for each tensor, and a second
/// use silently replaces the first. This function lets several users share the slot.
[[nodiscard]] GradientHook on_gradient_ready(const at::Tensor& parameter,
                                             GradientReadyFunction function);

}  // namespace ddp
