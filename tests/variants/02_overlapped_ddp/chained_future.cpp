// Correct, and unusual: a callback chained on each future divides and copies back, and finish() waits for
// the handle and for the chained future.
#include <ATen/ATen.h>

#include <unordered_set>
#include <utility>

#include "02_overlapped_ddp/overlapped_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

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

void broadcast_from_rank_0(const at::Tensor& tensor, const ProcessGroupPtr& group) {
  const at::Tensor values = tensor.detach();          // same storage, unseen by autograd
  const at::Tensor contiguous = values.contiguous();  // a copy only where it must be one
  broadcast(contiguous, group);
  if (!contiguous.is_same(values)) {
    values.copy_(contiguous);
  }
}

/// A trainable parameter, and where its gradient is on its way through a step.
struct Parameter {
  std::size_t index;  // in the caller's list, by which error messages name it
  at::Tensor tensor;
  GradientHook hook = {};
  bool accumulated = false;  // inside NoSync, and not sent yet
  at::Tensor sent = {};      // what is in flight: the gradient or a contiguous copy of it
  WorkPtr work = {};         // the all-reduce in flight; null if there is none
  c10::intrusive_ptr<c10::ivalue::Future> averaged = {};
};

class OverlappedDdp : public GradientSynchronizer {
 public:
  OverlappedDdp(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
                ProcessGroupPtr group)
      : group_(std::move(group)) {
    std::unordered_set<const c10::TensorImpl*> seen;  // tied weights are listed for each use
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!seen.insert(parameters[i].unsafeGetTensorImpl()).second) {
        continue;
      }
      broadcast_from_rank_0(parameters[i], group_);
      if (parameters[i].requires_grad()) {
        trainable_.push_back({.index = i, .tensor = parameters[i]});
      }
    }
    for (const at::Tensor& buffer : buffers) {
      broadcast_from_rank_0(buffer, group_);
    }
    for (Parameter& parameter : trainable_) {  // filled and final: hooks refer to its elements
      parameter.hook = on_gradient_ready(
          parameter.tensor, [this, &parameter](const at::Tensor&) { gradient_ready(parameter); });
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    for (Parameter& parameter : trainable_) {
      // The caller may have set the gradient to none since then.
      if (parameter.accumulated && parameter.tensor.grad().defined()) {
        launch(parameter);
      }
    }
    for (Parameter& parameter : trainable_) {
      if (parameter.work) {
        land(parameter);
      }
    }
  }

 private:
  /// Called within backward.
  void gradient_ready(Parameter& parameter) {
    TORCH_CHECK(!parameter.work,
                "overlapped DDP: backward ran twice without finish() in between, "
                "so it has added to the gradient of parameter ",
                parameter.index,
                " while that was in flight; call finish() after each backward, or accumulate "
                "inside a NoSync scope");
    if (synchronizes()) {
      launch(parameter);
    } else {
      parameter.accumulated = true;
    }
  }

  void launch(Parameter& parameter) {
    const at::NoGradGuard no_grad;
    const at::Tensor& gradient = parameter.tensor.grad();
    TORCH_CHECK(gradient.layout() == at::kStrided, "DDP: the gradient of parameter ",
                parameter.index, " is sparse; only dense gradients can be reduced");
    parameter.accumulated = false;
    parameter.sent = gradient.contiguous();
    parameter.work = all_reduce_async(parameter.sent, group_);
    parameter.averaged = parameter.work->getFuture()->then(
        [sum = parameter.sent, gradient, ranks = group_->getSize()](c10::ivalue::Future& done) {
          done.value();  // throws what the all-reduce has thrown
          const at::NoGradGuard no_grad;
          sum.div_(ranks);
          if (!sum.is_same(gradient)) {
            gradient.copy_(sum);
          }
          return c10::IValue();
        },
        c10::NoneType::get());
  }

  /// Waits for the sum, and for the average that its callback leaves in the gradient.
  void land(Parameter& parameter) {
    const at::NoGradGuard no_grad;
    const WorkPtr work = std::exchange(parameter.work, nullptr);
    parameter.sent.reset();
    work->wait();
    std::exchange(parameter.averaged, nullptr)->waitAndThrow();
  }

  ProcessGroupPtr group_;
  std::vector<Parameter> trainable_;
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_overlapped_ddp(std::vector<at::Tensor> parameters,
                                                          std::vector<at::Tensor> buffers,
                                                          ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group);
  return std::make_unique<OverlappedDdp>(parameters, buffers, std::move(group));
}

}  // namespace ddp
