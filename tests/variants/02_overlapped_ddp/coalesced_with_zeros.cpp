// Correct, and unusual: c10d's coalesced all-reduce, with one tensor each; finish() sends zeros for
// parameters without a gradient, and reduces whatever no hook has sent, even existing averages
// again; hooks are kept in a map, and gradients end in tensors that the synchronizer keeps.
#include <ATen/ATen.h>

#include <map>
#include <set>

#include "../construction.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

class Synchronizer : public GradientSynchronizer {
 public:
  Synchronizer(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
               ProcessGroupPtr group)
      : group_(std::move(group)), parameters_(parameters) {
    take_from_rank_0(parameters, group_);
    take_from_rank_0(buffers, group_);
    std::set<const void*> seen;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].requires_grad() &&
          seen.insert(parameters_[i].unsafeGetTensorImpl()).second) {
        kept_[i] = at::zeros(parameters_[i].sizes(), parameters_[i].options().requires_grad(false));
        hooks_[i] = on_gradient_ready(parameters_[i], [this, i](const at::Tensor&) {
          TORCH_CHECK(works_.count(i) == 0, "[", i, "] became ready twice without finish()");
          if (synchronizes()) {
            launch(i);
          }
        });
      }
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    const at::NoGradGuard no_grad;
    for (const auto& [i, hook] : hooks_) {
      if (works_.count(i) == 0) {
        launch(i);
      }
    }
    for (const auto& [i, work] : works_) {
      work->wait();
      parameters_[i].mutable_grad() = kept_[i].div_(group_->getSize());
    }
    works_.clear();
  }

 private:
  void launch(std::size_t i) {
    const at::NoGradGuard no_grad;
    const at::Tensor& gradient = parameters_[i].grad();
    TORCH_CHECK(!gradient.defined() || !gradient.is_sparse(), "[", i, "] has a sparse gradient");
    if (!gradient.defined()) {
      kept_[i].zero_();
    } else if (gradient.const_data_ptr() != kept_[i].const_data_ptr()) {
      kept_[i].copy_(gradient);
    }
    std::vector<at::Tensor> tensors = {kept_[i]};
    works_[i] = group_->allreduce_coalesced(tensors);
  }

  ProcessGroupPtr group_;
  std::vector<at::Tensor> parameters_;
  std::map<std::size_t, at::Tensor> kept_;
  std::map<std::size_t, WorkPtr> works_;
  std::map<std::size_t, GradientHook> hooks_;
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_overlapped_ddp(std::vector<at::Tensor> parameters,
                                                          std::vector<at::Tensor> buffers,
                                                          ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group);
  return std::make_unique<Synchronizer>(parameters, buffers, std::move(group));
}

}  // namespace ddp
