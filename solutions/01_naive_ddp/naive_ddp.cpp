#include "01_naive_ddp/naive_ddp.h"

#include <ATen/ATen.h>

#include <unordered_set>
#include <utility>

namespace ddp {
namespace {

/// A parameter and its index in the caller's list, by which error messages name it.
struct Parameter {
  std::size_t index;
  at::Tensor tensor;
};

void check_arguments(const std::vector<at::Tensor>& parameters,
                     const std::vector<at::Tensor>& buffers, const ProcessGroupPtr& group) {
  TORCH_CHECK(group, "DDP: the process group is null");
  TORCH_CHECK(!parameters.empty(), "DDP: the list of parameters is empty");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    TORCH_CHECK(parameters[i].defined(), "DDP: parameter ", i, " is undefined");
    TORCH_CHECK(parameters[i].is_leaf(), "DDP: parameter ", i,
                " is not a leaf of the autograd graph, so backward leaves no gradient in it");
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    TORCH_CHECK(buffers[i].defined(), "DDP: buffer ", i, " is undefined");
  }
}

/// Every tensor once, at its first occurrence: tied weights are listed for each of their uses.
std::vector<Parameter> without_duplicates(const std::vector<at::Tensor>& parameters) {
  std::vector<Parameter> distinct;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (seen.insert(parameters[i].unsafeGetTensorImpl()).second) {
      distinct.push_back({i, parameters[i]});
    }
  }
  return distinct;
}

void broadcast_from_rank_0(const at::Tensor& tensor, const ProcessGroupPtr& group) {
  const at::Tensor values = tensor.detach();          // same storage, unseen by autograd
  const at::Tensor contiguous = values.contiguous();  // a copy only where it must be one
  broadcast(contiguous, group);
  if (!contiguous.is_same(values)) {
    values.copy_(contiguous);
  }
}

/// The gradients to be reduced, in the order of `parameters`, which is the same on all ranks. A
/// missing gradient becomes zeros: other ranks may have one, and would wait for this rank.
std::vector<at::Tensor> gradients_of(const std::vector<Parameter>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& [index, parameter] : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) {
      gradient = at::zeros_like(parameter);
    }
    TORCH_CHECK(gradient.layout() == at::kStrided, "DDP: the gradient of parameter ", index,
                " is sparse; only dense gradients can be reduced");
    gradients.push_back(gradient);
  }
  return gradients;
}

/// Naive: one all-reduce for each gradient.
void average_each(const std::vector<at::Tensor>& gradients, const ProcessGroupPtr& group) {
  for (const at::Tensor& gradient : gradients) {
    const at::Tensor contiguous = gradient.contiguous();
    all_reduce(contiguous, group);
    contiguous.div_(group->getSize());
    if (!contiguous.is_same(gradient)) {
      gradient.copy_(contiguous);
    }
  }
}

/// Flat: one all-reduce for all gradients, which lie one after the other in one tensor.
void average_flat(const std::vector<at::Tensor>& gradients, const ProcessGroupPtr& group) {
  std::vector<at::Tensor> pieces;
  pieces.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) {
    pieces.push_back(gradient.reshape({-1}));
  }
  const at::Tensor flat = at::cat(pieces);
  all_reduce(flat, group);
  flat.div_(group->getSize());

  std::int64_t offset = 0;
  for (const at::Tensor& gradient : gradients) {
    gradient.copy_(flat.narrow(0, offset, gradient.numel()).view(gradient.sizes()));
    offset += gradient.numel();
  }
}

using AverageFunction = void (*)(const std::vector<at::Tensor>&, const ProcessGroupPtr&);

/// Both forms, which differ only in how a list of gradients is averaged.
class BlockingDdp : public GradientSynchronizer {
 public:
  BlockingDdp(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
              ProcessGroupPtr group, AverageFunction average)
      : group_(std::move(group)), average_(average) {
    for (const Parameter& parameter : without_duplicates(parameters)) {
      broadcast_from_rank_0(parameter.tensor, group_);
      if (parameter.tensor.requires_grad()) {
        trainable_.push_back(parameter);
      }
    }
    for (const at::Tensor& buffer : buffers) {
      broadcast_from_rank_0(buffer, group_);
    }
  }

  void finish() override {
    if (!synchronizes() || trainable_.empty()) {
      return;
    }
    const at::NoGradGuard no_grad;
    average_(gradients_of(trainable_), group_);
  }

 private:
  ProcessGroupPtr group_;
  AverageFunction average_;
  std::vector<Parameter> trainable_;
};

/// A flat tensor has one dtype and one device, so all trainable parameters must share them.
void check_uniform(const std::vector<at::Tensor>& parameters) {
  const at::Tensor* first = nullptr;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    if (!parameter.requires_grad()) {
      continue;
    }
    first = first == nullptr ? &parameter : first;
    TORCH_CHECK(
        parameter.scalar_type() == first->scalar_type() && parameter.device() == first->device(),
        "flat DDP: parameter ", i, " is ", parameter.scalar_type(), " on ", parameter.device(),
        ", but those before it are ", first->scalar_type(), " on ", first->device(),
        "; one flat all-reduce needs one dtype and one device");
  }
}

}  // namespace

std::unique_ptr<GradientSynchronizer> make_naive_ddp(std::vector<at::Tensor> parameters,
                                                     std::vector<at::Tensor> buffers,
                                                     ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group);
  return std::make_unique<BlockingDdp>(parameters, buffers, std::move(group), average_each);
}

std::unique_ptr<GradientSynchronizer> make_flat_ddp(std::vector<at::Tensor> parameters,
                                                    std::vector<at::Tensor> buffers,
                                                    ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group);
  check_uniform(parameters);
  return std::make_unique<BlockingDdp>(parameters, buffers, std::move(group), average_flat);
}

}  // namespace ddp
