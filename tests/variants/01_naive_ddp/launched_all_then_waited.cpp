// Correct, and unusual: launches all all-reduces after backward, then waits for all of them. The
// flat form keeps one tensor permanently; the gradients themselves are its pieces.
#include <ATen/ATen.h>

#include "../construction.h"
#include "01_naive_ddp/naive_ddp.h"

namespace ddp {
namespace {

bool contains(const std::vector<at::Tensor>& tensors, const at::Tensor& wanted) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.is_same(wanted)) {
      return true;
    }
  }
  return false;
}

class LaunchAll : public GradientSynchronizer {
 public:
  LaunchAll(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
            ProcessGroupPtr group)
      : group_(std::move(group)), all_(parameters) {
    std::vector<at::Tensor> state = buffers;
    for (const at::Tensor& parameter : parameters) {
      if (!contains(state, parameter)) {
        state.push_back(parameter);
        if (parameter.requires_grad()) {
          parameters_.push_back(parameter);
        }
      }
    }
    take_from_rank_0(state, group_);
  }

  void finish() override {
    if (!synchronizes() || parameters_.empty()) {
      return;
    }
    check_gradients(parameters_, all_);
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> messages = pack();
    std::vector<WorkPtr> works;
    for (const at::Tensor& message : messages) {
      works.push_back(all_reduce_async(message, group_));
    }
    for (const WorkPtr& work : works) {
      work->wait();
    }
    for (const at::Tensor& message : messages) {
      message.mul_(1.0 / group_->getSize());
    }
    unpack(messages);
  }

 protected:
  // One message for each gradient.
  virtual std::vector<at::Tensor> pack() {
    std::vector<at::Tensor> messages;
    for (const at::Tensor& parameter : parameters_) {
      const at::Tensor& gradient = parameter.grad();
      messages.push_back(gradient.defined() ? gradient.contiguous()
                                            : at::zeros(parameter.sizes(), parameter.options()));
    }
    return messages;
  }

  virtual void unpack(const std::vector<at::Tensor>& messages) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].mutable_grad() = messages[i];
    }
  }

  at::TensorOptions gradient_options() const {
    return parameters_[0].options().requires_grad(false);
  }

  ProcessGroupPtr group_;
  std::vector<at::Tensor> all_;  // as the caller lists them
  std::vector<at::Tensor> parameters_;
};

class KeepFlat : public LaunchAll {
 public:
  using LaunchAll::LaunchAll;

 protected:
  std::vector<at::Tensor> pack() override {
    if (!flat_.defined()) {
      std::int64_t total = 0;
      for (const at::Tensor& parameter : parameters_) {
        total += parameter.numel();
      }
      flat_ = at::empty({total}, gradient_options());
    }
    std::int64_t offset = 0;
    for (const at::Tensor& parameter : parameters_) {
      at::Tensor& gradient = parameter.mutable_grad();
      const at::Tensor piece = flat_.narrow(0, offset, parameter.numel()).view(parameter.sizes());
      if (!gradient.defined()) {
        piece.zero_();
      } else if (gradient.const_data_ptr() != piece.const_data_ptr()) {
        piece.copy_(gradient);
      }
      gradient = piece;
      offset += parameter.numel();
    }
    return {flat_};
  }

  void unpack(const std::vector<at::Tensor>&) override {}  // the gradients are views already

 private:
  at::Tensor flat_;
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_naive_ddp(std::vector<at::Tensor> parameters,
                                                     std::vector<at::Tensor> buffers,
                                                     ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group, /*uniform=*/false);
  return std::make_unique<LaunchAll>(parameters, buffers, std::move(group));
}

std::unique_ptr<GradientSynchronizer> make_flat_ddp(std::vector<at::Tensor> parameters,
                                                    std::vector<at::Tensor> buffers,
                                                    ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group, /*uniform=*/true);
  return std::make_unique<KeepFlat>(parameters, buffers, std::move(group));
}

}  // namespace ddp
