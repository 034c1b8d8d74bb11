// Correct, and unusual: passes each handle to a thread that waits and divides while backward
// continues; finish() waits for that thread.
#include <ATen/ATen.h>

#include <unordered_map>
#include <utility>

#include "../construction.h"
#include "../waiter.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

class Synchronizer : public GradientSynchronizer {
 public:
  Synchronizer(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
               ProcessGroupPtr group)
      : group_(std::move(group)) {
    take_from_rank_0(parameters, group_);
    take_from_rank_0(buffers, group_);
    std::unordered_map<const void*, std::size_t> first;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].requires_grad() &&
          first.emplace(parameters[i].unsafeGetTensorImpl(), i).second) {
        parameters_.emplace_back(i, parameters[i]);
      }
    }
    state_.assign(parameters_.size(), State::kIdle);
    for (std::size_t k = 0; k < parameters_.size(); ++k) {
      hooks_.push_back(
          on_gradient_ready(parameters_[k].second, [this, k](const at::Tensor&) { ready(k); }));
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    for (std::size_t k = 0; k < parameters_.size(); ++k) {
      if (state_[k] == State::kOwed && parameters_[k].second.grad().defined()) {
        launch(k);
      }
    }
    state_.assign(parameters_.size(), State::kIdle);
    waiter_.drain();
  }

 private:
  enum class State { kIdle, kOwed, kSent };

  void ready(std::size_t k) {
    TORCH_CHECK(state_[k] != State::kSent, "the gradient of parameter ", parameters_[k].first,
                " has been sent already");
    state_[k] = State::kOwed;
    if (synchronizes()) {
      launch(k);
    }
  }

  void launch(std::size_t k) {
    const at::Tensor gradient = parameters_[k].second.grad().detach();
    TORCH_CHECK(!gradient.is_sparse(), "parameter ", parameters_[k].first, ": sparse gradient");
    state_[k] = State::kSent;
    const at::Tensor sum = gradient.clone(at::MemoryFormat::Contiguous);
    waiter_.submit(
        [gradient, sum, ranks = group_->getSize(), work = all_reduce_async(sum, group_)] {
          const at::NoGradGuard no_grad;
          work->wait();
          gradient.copy_(sum.div_(ranks));
        });
  }

  ProcessGroupPtr group_;
  std::vector<std::pair<std::size_t, at::Tensor>> parameters_;  // with their indices
  std::vector<State> state_;
  Waiter waiter_;
  std::vector<GradientHook> hooks_;  // last: the hooks use the others
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_overlapped_ddp(std::vector<at::Tensor> parameters,
                                                          std::vector<at::Tensor> buffers,
                                                          ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group);
  return std::make_unique<Synchronizer>(parameters, buffers, std::move(group));
}

}  // namespace ddp
