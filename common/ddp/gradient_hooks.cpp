#include "ddp/gradient_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace ddp {

namespace {

namespace autograd = torch::autograd;

// Occupies libtorch's slot and calls all registered functions. It does not own them: a function
// dies with its GradientHook.
class SharedHook : public autograd::PostAccumulateGradHook {
 public:
  void add(std::weak_ptr<GradientReadyFunction> function) {
    std::erase_if(functions_, [](const auto& old) { return old.expired(); });
    functions_.push_back(std::move(function));
  }

  void operator()(const autograd::Variable& parameter) override {
    // A copy: a function may register another one, or end a registration, even its own.
    for (const auto& weak : std::vector(functions_)) {
      if (const auto function = weak.lock()) {
        // A handle of its own: who keeps a reference to it finds that out soon.
        const auto handle = std::make_unique<const at::Tensor>(parameter);
        (*function)(*handle);
      }
    }
  }

 private:
  std::vector<std::weak_ptr<GradientReadyFunction>> functions_;
};

SharedHook& shared_hook(const at::Tensor& parameter) {
  auto& slot = autograd::impl::post_acc_grad_hooks(parameter);
  if (slot == nullptr) {
    autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<SharedHook>());
  }
  auto* hook = dynamic_cast<SharedHook*>(autograd::impl::post_acc_grad_hooks(parameter).get());
  TORCH_CHECK(hook != nullptr,
              "the parameter already has a post-accumulate-grad hook that was not made by "
              "on_gradient_ready(); a second one would silently replace it");
  return *hook;
}

}  // namespace

GradientHook on_gradient_ready(const at::Tensor& parameter, GradientReadyFunction function) {
  TORCH_CHECK(parameter.defined(), "on_gradient_ready() needs a defined parameter");
  TORCH_CHECK(parameter.is_leaf() && parameter.requires_grad(),
              "on_gradient_ready() needs a leaf that requires a gradient");
  TORCH_CHECK(function != nullptr, "on_gradient_ready() needs a function to call");
  auto shared = std::make_shared<GradientReadyFunction>(std::move(function));
  shared_hook(parameter).add(shared);
  return GradientHook(std::move(shared));
}

}  // namespace ddp
