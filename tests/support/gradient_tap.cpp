#include "support/gradient_tap.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace ddp::testing {

namespace autograd = torch::autograd;

namespace {

// Calls a function before an autograd node runs, and passes the gradients on unchanged.
class BeforeNode : public autograd::FunctionPreHook {
 public:
  explicit BeforeNode(std::function<void(const at::Tensor&)> function)
      : function_(std::move(function)) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    function_(gradients[0]);
    return gradients;
  }

 private:
  std::function<void(const at::Tensor&)> function_;
};

}  // namespace

GradientTap::GradientTap(const std::vector<at::Tensor>& parameters, Function function)
    : function_(std::make_shared<const Function>(std::move(function))) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].requires_grad()) {
      continue;
    }
    const auto accumulator = autograd::impl::grad_accumulator(parameters[i]);
    // Weak: a graph may keep the accumulator alive, and with it the hook, longer than the tap.
    const std::weak_ptr<const Function> weak = function_;
    accumulator->add_pre_hook(std::make_unique<BeforeNode>([weak, i](const at::Tensor& incoming) {
      if (const auto alive = weak.lock()) {
        (*alive)(i, incoming);
      }
    }));
    accumulators_.push_back(accumulator);
  }
}

}  // namespace ddp::testing
