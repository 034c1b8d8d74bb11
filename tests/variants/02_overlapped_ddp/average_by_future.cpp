// Correct, and unusual: c10d without the lab's helpers; the backend averages (ReduceOp::AVG); a
// copy is sent, which becomes the gradient; and futures are waited for, not handles.
#include <ATen/ATen.h>

#include <algorithm>
#include <deque>

#include "../construction.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

struct Item {
  Item(std::size_t at, at::Tensor leaf) : index(at), parameter(std::move(leaf)) {}
  std::size_t index;
  at::Tensor parameter;
  at::Tensor average;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  bool unsent = false;
  GradientHook hook;
};

class Synchronizer : public GradientSynchronizer {
 public:
  Synchronizer(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
               ProcessGroupPtr group)
      : group_(std::move(group)) {
    for (const auto* list : {&parameters, &buffers}) {
      for (const at::Tensor& tensor : *list) {
        std::vector<at::Tensor> values = {tensor.detach().contiguous()};
        group_->broadcast(values)->wait();
        tensor.detach().copy_(values[0]);
      }
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].requires_grad() && !knows(parameters[i])) {
        Item& item = items_.emplace_back(i, parameters[i]);  // a deque's elements stay in place
        item.hook = on_gradient_ready(item.parameter, [this, &item](const at::Tensor&) {
          TORCH_CHECK(!item.future, "parameter ", item.index, ": finish() was not called");
          synchronizes() ? send(item) : static_cast<void>(item.unsent = true);
        });
      }
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    for (Item& item : items_) {
      if (item.unsent && item.parameter.grad().defined()) {
        send(item);
      }
      item.unsent = false;
    }
    for (Item& item : items_) {
      if (item.future) {
        item.future->waitAndThrow();
        item.parameter.mutable_grad() = item.average;
        item.average.reset();
        item.future.reset();
      }
    }
  }

 private:
  bool knows(const at::Tensor& parameter) const {
    return std::any_of(items_.begin(), items_.end(),
                       [&](const Item& item) { return item.parameter.is_same(parameter); });
  }

  void send(Item& item) {
    const at::NoGradGuard no_grad;
    item.unsent = false;
    const at::Tensor& gradient = item.parameter.grad();
    TORCH_CHECK(gradient.layout() == at::kStrided, "parameter ", item.index, ": sparse gradient");
    item.average = gradient.clone(at::MemoryFormat::Contiguous);
    std::vector<at::Tensor> tensors = {item.average};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::AVG;
    item.future = group_->allreduce(tensors, options)->getFuture();
  }

  ProcessGroupPtr group_;
  std::deque<Item> items_;
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_overlapped_ddp(std::vector<at::Tensor> parameters,
                                                          std::vector<at::Tensor> buffers,
                                                          ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group);
  return std::make_unique<Synchronizer>(parameters, buffers, std::move(group));
}

}  // namespace ddp
