#include "support/gradient_watch.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>

namespace ddp::testing {

namespace {

namespace autograd = torch::autograd;

// Calls a function before an autograd node runs, and passes the gradients on unchanged.
class BeforeNode : public autograd::FunctionPreHook {
 public:
  explicit BeforeNode(std::function<void()> function) : function_(std::move(function)) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    function_();
    return gradients;
  }

 private:
  std::function<void()> function_;
};

}  // namespace

struct GradientWatch::State {
  std::vector<ReadyGradient> ready;
  // Kept alive: a parameter owns its accumulator only as long as a graph does.
  std::vector<std::shared_ptr<autograd::Node>> accumulators;
};

GradientWatch::GradientWatch(Rank& rank, const std::vector<NamedTensor>& parameters)
    : state_(std::make_shared<State>()) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto accumulator = autograd::impl::grad_accumulator(parameters[i].tensor);
    // Weak: a graph may keep the accumulator alive, and with it the hook, longer than this watch.
    const std::weak_ptr<State> weak = state_;
    accumulator->add_pre_hook(std::make_unique<BeforeNode>([&rank, weak, i] {
      if (const auto state = weak.lock()) {
        state->ready.push_back({i, rank.recorder().mark(), rank.clock()->now()});
      }
    }));
    state_->accumulators.push_back(accumulator);
  }
}

GradientWatch::~GradientWatch() = default;

const std::vector<ReadyGradient>& GradientWatch::ready() const { return state_->ready; }

void GradientWatch::clear() { state_->ready.clear(); }

}  // namespace ddp::testing
