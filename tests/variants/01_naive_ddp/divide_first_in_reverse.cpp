// Correct, and unusual: divides before the all-reduce, and goes through the parameters backwards. A
// hook refuses a sparse gradient already in backward, inside NoSync, too.
#include <ATen/ATen.h>

#include <algorithm>

#include "../construction.h"
#include "01_naive_ddp/naive_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

class Synchronizer : public GradientSynchronizer {
 public:
  Synchronizer(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
               ProcessGroupPtr group, bool flat)
      : group_(std::move(group)), all_(parameters), flat_(flat) {
    std::vector<at::Tensor> state = parameters;
    state.insert(state.end(), buffers.begin(), buffers.end());
    for (const at::Tensor& tensor : state) {
      const at::Tensor copy = tensor.detach().clone(at::MemoryFormat::Contiguous);
      broadcast(copy, group_);
      tensor.detach().copy_(copy);
    }
    for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
      const auto same = [&](const at::Tensor& other) { return other.is_same(*parameter); };
      if (parameter->requires_grad() && std::none_of(trainable_.begin(), trainable_.end(), same)) {
        trainable_.push_back(*parameter);
        hooks_.push_back(on_gradient_ready(
            *parameter, [this](const at::Tensor& ready) { check_gradients({ready}, all_); }));
      }
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    check_gradients(trainable_, all_);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> shares;
    for (const at::Tensor& parameter : trainable_) {
      const at::Tensor gradient =
          parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter);
      shares.push_back((gradient / group_->getSize()).reshape({-1}));
    }
    if (flat_ && !shares.empty()) {
      reduce_flat(shares);
    } else {
      for (const at::Tensor& share : shares) {
        all_reduce(share, group_);
      }
    }
    for (std::size_t i = 0; i < trainable_.size(); ++i) {
      trainable_[i].mutable_grad() = shares[i].view(trainable_[i].sizes());
    }
  }

 private:
  // The pieces become views of the flat tensor.
  void reduce_flat(std::vector<at::Tensor>& pieces) const {
    const at::Tensor flat = at::cat(pieces);
    all_reduce(flat, group_);
    std::int64_t offset = 0;
    for (at::Tensor& piece : pieces) {
      const std::int64_t size = piece.numel();
      piece = flat.narrow(0, offset, size);
      offset += size;
    }
  }

  ProcessGroupPtr group_;
  bool flat_;
  std::vector<at::Tensor> all_;  // as the caller lists them
  std::vector<at::Tensor> trainable_;
  std::vector<GradientHook> hooks_;
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_naive_ddp(std::vector<at::Tensor> parameters,
                                                     std::vector<at::Tensor> buffers,
                                                     ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group, /*uniform=*/false);
  return std::make_unique<Synchronizer>(parameters, buffers, std::move(group), /*flat=*/false);
}

std::unique_ptr<GradientSynchronizer> make_flat_ddp(std::vector<at::Tensor> parameters,
                                                    std::vector<at::Tensor> buffers,
                                                    ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group, /*uniform=*/true);
  return std::make_unique<Synchronizer>(parameters, buffers, std::move(group), /*flat=*/true);
}

}  // namespace ddp
