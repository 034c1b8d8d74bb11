// Correct, and unusual: hooks on autograd's accumulators instead of on_gradient_ready; finish()
// polls; a single rank communicates nothing at all.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <list>
#include <thread>
#include <utility>

#include "../construction.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "ddp/libtorch_versions.h"

namespace ddp {
namespace {

namespace autograd = torch::autograd;

class AfterNode : public autograd::FunctionPostHook {
 public:
  explicit AfterNode(std::function<void()> function) : function_(std::move(function)) {}

  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list&) override {
    function_();
    return outputs;
  }

 private:
  std::function<void()> function_;
};

struct Leaf {
  std::size_t index;
  at::Tensor tensor;
  OwnedNode accumulator;
  std::uintptr_t key = 0;
  bool owed = false;
  at::Tensor sum = {};
  WorkPtr work = {};
};

class Synchronizer : public GradientSynchronizer {
 public:
  Synchronizer(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
               ProcessGroupPtr group)
      : group_(std::move(group)) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      take_from_rank_0(parameters[i]);
      const auto same = [&](const Leaf& leaf) { return leaf.tensor.is_same(parameters[i]); };
      if (parameters[i].requires_grad() && std::none_of(leaves_.begin(), leaves_.end(), same)) {
        leaves_.push_back({i, parameters[i], autograd::impl::grad_accumulator(parameters[i])});
      }
    }
    for (const at::Tensor& buffer : buffers) {
      take_from_rank_0(buffer);
    }
    for (Leaf& leaf : leaves_) {
      leaf.key = leaf.accumulator->add_post_hook(
          std::make_unique<AfterNode>([this, &leaf] { after_accumulation(leaf); }));
    }
  }

  Synchronizer(const Synchronizer&) = delete;
  Synchronizer& operator=(const Synchronizer&) = delete;
  ~Synchronizer() override {
    for (const Leaf& leaf : leaves_) {
      leaf.accumulator->del_post_hook(leaf.key);
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    for (Leaf& leaf : leaves_) {
      if (std::exchange(leaf.owed, false) && leaf.tensor.grad().defined()) {
        launch(leaf);
      }
    }
    const at::NoGradGuard no_grad;
    for (Leaf& leaf : leaves_) {
      if (leaf.work == nullptr) {
        continue;
      }
      while (!leaf.work->isCompleted()) {
        std::this_thread::yield();
      }
      const WorkPtr work = std::exchange(leaf.work, nullptr);
      if (const std::exception_ptr error = work->exception()) {
        std::rethrow_exception(error);
      }
      leaf.tensor.grad().copy_(leaf.sum).mul_(1.0 / group_->getSize());
      leaf.sum.reset();
    }
  }

 private:
  void take_from_rank_0(const at::Tensor& tensor) const {
    if (group_->getSize() > 1) {
      const at::Tensor values = tensor.detach().contiguous();
      broadcast(values, group_);
      tensor.detach().copy_(values);
    }
  }

  void after_accumulation(Leaf& leaf) {
    TORCH_CHECK(leaf.work == nullptr, "two backwards before finish() (parameter ", leaf.index, ")");
    if (synchronizes()) {
      leaf.owed = false;
      launch(leaf);
    } else {
      leaf.owed = true;
    }
  }

  void launch(Leaf& leaf) {
    const at::Tensor& gradient = leaf.tensor.grad();
    TORCH_CHECK(gradient.layout() == at::kStrided, "sparse gradient (parameter ", leaf.index, ")");
    if (group_->getSize() > 1) {
      leaf.sum = gradient.detach().contiguous();
      leaf.work = all_reduce_async(leaf.sum, group_);
    }
  }

  ProcessGroupPtr group_;
  std::list<Leaf> leaves_;
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_overlapped_ddp(std::vector<at::Tensor> parameters,
                                                          std::vector<at::Tensor> buffers,
                                                          ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group);
  return std::make_unique<Synchronizer>(parameters, buffers, std::move(group));
}

}  // namespace ddp
