// Correct, and unusual: uses libtorch's single hook per tensor itself. Each hook calls the one that
// it replaced; a destroyed synchronizer puts that back, unless its own was replaced. The hooks share the owners of
// the handles, by weak pointers. A sparse gradient is refused by its hook, inside NoSync, too.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "../construction.h"
#include "02_overlapped_ddp/overlapped_ddp.h"

namespace ddp {
namespace {

namespace autograd = torch::autograd;

using Action = std::function<void()>;

class ChainedHook : public autograd::PostAccumulateGradHook {
 public:
  ChainedHook(std::unique_ptr<autograd::PostAccumulateGradHook> before,
              std::weak_ptr<const Action> action)
      : before_(std::move(before)), action_(std::move(action)) {}

  bool does(const std::shared_ptr<const Action>& action) const { return action_.lock() == action; }
  std::unique_ptr<autograd::PostAccumulateGradHook> give_back() { return std::move(before_); }

  void operator()(const autograd::Variable& parameter) override {
    if (before_) {
      (*before_)(parameter);
    }
    if (const auto action = action_.lock()) {
      (*action)();
    }
  }

 private:
  std::unique_ptr<autograd::PostAccumulateGradHook> before_;
  std::weak_ptr<const Action> action_;
};

class Synchronizer : public GradientSynchronizer {
 public:
  Synchronizer(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
               ProcessGroupPtr group)
      : group_(std::move(group)), parameters_(parameters) {
    take_from_rank_0(parameters, group_);
    take_from_rank_0(buffers, group_);
    works_.resize(parameters_.size());
    sums_.resize(parameters_.size());
    owed_.resize(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto same = [&](const at::Tensor& other) { return other.is_same(parameters[i]); };
      const auto end = parameters.begin() + static_cast<std::ptrdiff_t>(i);
      if (parameters[i].requires_grad() && std::none_of(parameters.begin(), end, same)) {
        actions_.push_back(std::make_shared<const Action>([this, i] { ready(i); }));
        hooked_.push_back(parameters_[i]);
        autograd::impl::set_post_acc_grad_hooks(
            parameters_[i],
            std::make_unique<ChainedHook>(
                std::move(autograd::impl::post_acc_grad_hooks(parameters_[i])), actions_.back()));
      }
    }
  }

  Synchronizer(const Synchronizer&) = delete;
  Synchronizer& operator=(const Synchronizer&) = delete;

  ~Synchronizer() override {
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      auto& slot = autograd::impl::post_acc_grad_hooks(hooked_[i]);
      auto* hook = dynamic_cast<ChainedHook*>(slot.get());
      if (hook != nullptr && hook->does(actions_[i])) {
        slot = hook->give_back();
      }
    }
  }

  void finish() override {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; synchronizes() && i < parameters_.size(); ++i) {
      if (owed_[i] && parameters_[i].grad().defined()) {
        launch(i);
      }
      owed_[i] = false;
    }
    for (std::size_t i = 0; synchronizes() && i < parameters_.size(); ++i) {
      if (works_[i]) {
        std::exchange(works_[i], nullptr)->wait();
        const at::Tensor average = std::exchange(sums_[i], at::Tensor()) / group_->getSize();
        parameters_[i].grad().set_data(average);
      }
    }
  }

 private:
  void ready(std::size_t i) {
    TORCH_CHECK(!works_[i], "two backwards in one step; first met at parameter number ", i);
    TORCH_CHECK(!parameters_[i].grad().is_sparse(), "a sparse gradient of parameter number ", i);
    owed_[i] = true;
    if (synchronizes()) {
      launch(i);
    }
  }

  void launch(std::size_t i) {
    owed_[i] = false;
    sums_[i] = parameters_[i].grad().detach().clone(at::MemoryFormat::Contiguous);
    works_[i] = all_reduce_async(sums_[i], group_);
  }

  ProcessGroupPtr group_;
  std::vector<at::Tensor> parameters_;
  std::vector<WorkPtr> works_;
  std::vector<at::Tensor> sums_;
  std::vector<bool> owed_;
  std::vector<std::shared_ptr<const Action>> actions_;
  std::vector<at::Tensor> hooked_;  // the parameter of each action
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_overlapped_ddp(std::vector<at::Tensor> parameters,
                                                          std::vector<at::Tensor> buffers,
                                                          ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group);
  return std::make_unique<Synchronizer>(parameters, buffers, std::move(group));
}

}  // namespace ddp
