// Correct, and unusual: each rank scales its own part, in place, before all are added; the largest
// gradient goes first; and a single rank communicates nothing at all.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "../construction.h"
#include "01_naive_ddp/naive_ddp.h"

namespace ddp {
namespace {

class WeightedSum : public GradientSynchronizer {
 public:
  WeightedSum(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
              ProcessGroupPtr group, bool flat)
      : group_(std::move(group)), all_(parameters), flat_(flat) {
    share(parameters);
    share(buffers);
    for (const at::Tensor& parameter : parameters) {
      const auto same = [&](const at::Tensor& other) { return other.is_same(parameter); };
      if (parameter.requires_grad() && std::none_of(trainable_.begin(), trainable_.end(), same)) {
        trainable_.push_back(parameter);
      }
    }
    std::stable_sort(
        trainable_.begin(), trainable_.end(),
        [](const at::Tensor& a, const at::Tensor& b) { return a.numel() > b.numel(); });
  }

  void finish() override {
    if (!synchronizes() || trainable_.empty()) {
      return;
    }
    check_gradients(trainable_, all_);
    if (group_->getSize() == 1) {
      return;
    }
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : trainable_) {
      at::Tensor& gradient = parameter.mutable_grad();
      gradient = gradient.defined() ? gradient.div_(group_->getSize()) : at::zeros_like(parameter);
    }
    flat_ ? add_up_together() : add_up_each();
  }

 private:
  void share(const std::vector<at::Tensor>& tensors) const {
    if (group_->getSize() == 1) {
      return;
    }
    for (const at::Tensor& tensor : tensors) {
      const at::Tensor values = tensor.detach().contiguous();
      broadcast(values, group_);
      tensor.detach().copy_(values);
    }
  }

  void add_up_each() const {
    for (const at::Tensor& parameter : trainable_) {
      const at::Tensor sum = parameter.grad().contiguous();
      all_reduce(sum, group_);
      parameter.grad().copy_(sum);
    }
  }

  void add_up_together() const {
    std::vector<at::Tensor> pieces;
    std::vector<std::int64_t> sizes;
    for (const at::Tensor& parameter : trainable_) {
      pieces.push_back(parameter.grad().flatten());
      sizes.push_back(parameter.numel());
    }
    const at::Tensor flat = at::cat(pieces);
    all_reduce(flat, group_);
    const auto sums = flat.split_with_sizes(sizes);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      trainable_[i].grad().copy_(sums[i].view(trainable_[i].sizes()));
    }
  }

  ProcessGroupPtr group_;
  bool flat_;
  std::vector<at::Tensor> all_;  // as the caller lists them
  std::vector<at::Tensor> trainable_;
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_naive_ddp(std::vector<at::Tensor> parameters,
                                                     std::vector<at::Tensor> buffers,
                                                     ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group, /*uniform=*/false);
  return std::make_unique<WeightedSum>(parameters, buffers, std::move(group),
                                       /*flat=*/false);
}

std::unique_ptr<GradientSynchronizer> make_flat_ddp(std::vector<at::Tensor> parameters,
                                                    std::vector<at::Tensor> buffers,
                                                    ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group, /*uniform=*/true);
  return std::make_unique<WeightedSum>(parameters, buffers, std::move(group),
                                       /*flat=*/true);
}

}  // namespace ddp
