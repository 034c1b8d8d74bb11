// Correct, and unusual: c10d without the lab's helpers, the backend averages (ReduceOp::AVG),
// gradients are new tensors, and the flat form is c10d's coalesced all-reduce.
#include <ATen/ATen.h>

#include <set>

#include "../construction.h"
#include "01_naive_ddp/naive_ddp.h"

namespace ddp {
namespace {

class Averager : public GradientSynchronizer {
 public:
  Averager(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
           ProcessGroupPtr group, bool coalesced)
      : group_(std::move(group)), all_(parameters), coalesced_(coalesced) {
    for (const at::Tensor& buffer : buffers) {
      take_from_rank_0(buffer);
    }
    std::set<void*> seen;
    for (const at::Tensor& parameter : parameters) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) {
        take_from_rank_0(parameter);
        if (parameter.requires_grad()) {
          parameters_.push_back(parameter);
        }
      }
    }
  }

  void finish() override {
    if (!synchronizes() || parameters_.empty()) {
      return;
    }
    check_gradients(parameters_, all_);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> averages;
    for (const at::Tensor& parameter : parameters_) {
      averages.push_back(at::zeros(parameter.sizes(), parameter.options().requires_grad(false)));
      if (parameter.grad().defined()) {
        averages.back().copy_(parameter.grad());
      }
    }
    average(averages);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].mutable_grad() = averages[i];
    }
  }

 private:
  void take_from_rank_0(const at::Tensor& tensor) const {
    std::vector<at::Tensor> values = {tensor.detach().contiguous()};
    group_->broadcast(values)->wait();
    tensor.detach().copy_(values[0]);
  }

  void average(std::vector<at::Tensor>& tensors) const {
    if (coalesced_) {
      c10d::AllreduceCoalescedOptions options;
      options.reduceOp = c10d::ReduceOp::AVG;
      group_->allreduce_coalesced(tensors, options)->wait();
      return;
    }
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::AVG;
    for (const at::Tensor& tensor : tensors) {
      std::vector<at::Tensor> one = {tensor};
      group_->allreduce(one, options)->wait();
    }
  }

  ProcessGroupPtr group_;
  bool coalesced_;
  std::vector<at::Tensor> all_;  // as the caller lists them
  std::vector<at::Tensor> parameters_;
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_naive_ddp(std::vector<at::Tensor> parameters,
                                                     std::vector<at::Tensor> buffers,
                                                     ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group, /*uniform=*/false);
  return std::make_unique<Averager>(parameters, buffers, std::move(group), /*coalesced=*/false);
}

std::unique_ptr<GradientSynchronizer> make_flat_ddp(std::vector<at::Tensor> parameters,
                                                    std::vector<at::Tensor> buffers,
                                                    ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group, /*uniform=*/true);
  return std::make_unique<Averager>(parameters, buffers, std::move(group), /*coalesced=*/true);
}

}  // namespace ddp
