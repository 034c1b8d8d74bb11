// Correct, and unusual: divides before the launch, keeps a map of records shared with the hooks,
// and a queue of pending work.
#include <ATen/ATen.h>

#include <map>
#include <queue>
#include <utility>

#include "../construction.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

struct Record {
  std::size_t index;
  at::Tensor parameter;
  bool owed = false;
  WorkPtr work = {};
  at::Tensor share = {};
};

class Synchronizer : public GradientSynchronizer {
 public:
  Synchronizer(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
               ProcessGroupPtr group)
      : group_(std::move(group)) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      copy_from_rank_0(parameters[i]);
      const auto record = std::make_shared<Record>(Record{.index = i, .parameter = parameters[i]});
      if (parameters[i].requires_grad() &&
          records_.emplace(parameters[i].unsafeGetTensorImpl(), record).second) {
        in_order_.push_back(record);
      }
    }
    for (const at::Tensor& buffer : buffers) {
      copy_from_rank_0(buffer);
    }
    for (const auto& [impl, record] : records_) {
      hooks_.push_back(on_gradient_ready(
          record->parameter, [this, record = record](const at::Tensor&) { on_ready(record); }));
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    for (const auto& record : in_order_) {
      if (record->owed && record->parameter.grad().defined()) {
        launch(record);
      }
      record->owed = false;
    }
    const at::NoGradGuard no_grad;
    for (; !flying_.empty(); flying_.pop()) {
      Record& record = *flying_.front();
      std::exchange(record.work, nullptr)->wait();
      record.parameter.grad().copy_(record.share);
      record.share.reset();
    }
  }

 private:
  void copy_from_rank_0(const at::Tensor& tensor) const {
    const at::Tensor copy = tensor.detach().clone(at::MemoryFormat::Contiguous);
    broadcast(copy, group_);
    tensor.detach().copy_(copy);
  }

  void on_ready(const std::shared_ptr<Record>& record) {
    TORCH_CHECK(!record->work, "parameter ", record->index, " is still being reduced");
    record->owed = true;
    if (synchronizes()) {
      launch(record);
    }
  }

  void launch(const std::shared_ptr<Record>& record) {
    const at::NoGradGuard no_grad;
    const at::Tensor gradient = record->parameter.grad();
    TORCH_CHECK(!gradient.is_sparse(), "parameter ", record->index, " has a sparse gradient");
    record->owed = false;
    record->share = gradient.div(group_->getSize()).contiguous();
    record->work = all_reduce_async(record->share, group_);
    flying_.push(record);
  }

  ProcessGroupPtr group_;
  std::map<const void*, std::shared_ptr<Record>> records_;
  std::vector<std::shared_ptr<Record>> in_order_;
  std::queue<std::shared_ptr<Record>> flying_;
  std::vector<GradientHook> hooks_;
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_overlapped_ddp(std::vector<at::Tensor> parameters,
                                                          std::vector<at::Tensor> buffers,
                                                          ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group);
  return std::make_unique<Synchronizer>(parameters, buffers, std::move(group));
}

}  // namespace ddp
