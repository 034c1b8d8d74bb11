#include "support/kept_gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "ddp/referee/access_watch.h"
#include "support/compare.h"

namespace ddp::testing {

namespace autograd = torch::autograd;

namespace {

const void* place_of(const at::Tensor& gradient) {
  return gradient.defined() ? gradient.const_data_ptr() : nullptr;
}

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

KeptGradients::KeptGradients(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
  keep();
}

void KeptGradients::keep() {
  const OwnAccess own;
  copies_.clear();
  places_.clear();
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor& gradient = parameter.grad();
    copies_.push_back(gradient.defined() ? gradient.detach().clone() : at::Tensor());
    places_.push_back(place_of(gradient));
  }
}

void KeptGradients::add(std::size_t parameter, const at::Tensor& incoming) {
  const OwnAccess own;
  const at::NoGradGuard no_grad;
  at::Tensor& sum = copies_[parameter];
  sum = sum.defined() ? sum + incoming : incoming.detach().clone();
}

std::vector<std::size_t> KeptGradients::changed() const {
  const OwnAccess own;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_identical(parameters_[i].grad(), copies_[i])) {
      found.push_back(i);
    }
  }
  return found;
}

std::vector<std::size_t> KeptGradients::moved() const {
  const OwnAccess own;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (place_of(parameters_[i].grad()) != places_[i]) {
      found.push_back(i);
    }
  }
  return found;
}

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
