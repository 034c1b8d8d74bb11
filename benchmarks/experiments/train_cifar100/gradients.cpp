#include "experiments/train_cifar100/gradients.h"

#include <ATen/ATen.h>

#include "01_naive_ddp/naive_ddp.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "03_bucketed_ddp/bucketed_ddp.h"
#include "ddp/peers/reducer_peer.h"
#include "peers/batch_norms.h"

namespace ddp {
namespace {

using Tensors = std::vector<at::Tensor>;

class Selfmade : public GradientAverager {
 public:
  explicit Selfmade(std::unique_ptr<GradientSynchronizer> synchronizer)
      : synchronizer_(std::move(synchronizer)) {}

  void accumulate(const Loss& loss) override {
    const NoSync no_sync(*synchronizer_);
    loss().backward();
  }

  void accumulate_and_average(const Loss& loss) override {
    loss().backward();
    synchronizer_->finish();
  }

 private:
  std::unique_ptr<GradientSynchronizer> synchronizer_;
};

class Pytorch : public GradientAverager {
 public:
  Pytorch(const Tensors& parameters, const Tensors& buffers, const ProcessGroupPtr& group)
      : peer_(parameters, buffers, group) {}

  // The published program trains with DistributedDataParallel without no_sync(), which averages what
  // has been accumulated after each micro-batch. The last average is the same.
  void accumulate(const Loss& loss) override { accumulate_and_average(loss); }

  void accumulate_and_average(const Loss& loss) override {
    peer_.before_forward();
    const at::Tensor value = loss();
    peer_.before_backward();
    value.backward();
  }

 private:
  ReducerPeer peer_;
};

class Plain : public GradientAverager {
 public:
  Plain(Tensors parameters, ProcessGroupPtr group)
      : parameters_(std::move(parameters)), group_(std::move(group)) {}

  void accumulate(const Loss& loss) override { loss().backward(); }

  void accumulate_and_average(const Loss& loss) override {
    loss().backward();
    for (const at::Tensor& parameter : parameters_) {
      all_reduce(parameter.grad(), group_);
      parameter.grad().div_(group_->getSize());
    }
  }

 private:
  Tensors parameters_;
  ProcessGroupPtr group_;
};

std::unique_ptr<GradientSynchronizer> make_synchronizer(const std::string& ddp,
                                                        const Tensors& parameters,
                                                        const Tensors& buffers,
                                                        const ProcessGroupPtr& group) {
  if (ddp == "naive") {
    return make_naive_ddp(parameters, buffers, group);
  }
  if (ddp == "flat") {
    return make_flat_ddp(parameters, buffers, group);
  }
  if (ddp == "overlapped") {
    return make_overlapped_ddp(parameters, buffers, group);
  }
  TORCH_CHECK_VALUE(ddp == "bucketed", "there is no way of averaging \"", ddp, "\"");
  return make_bucketed_ddp(parameters, buffers, group);
}

}  // namespace

std::string batch_norm_of(const std::string& distributed_impl) {
  return distributed_impl == kSelfmade ? kStageBatchNorm : kPeerBatchNorm;
}

std::unique_ptr<GradientAverager> make_gradient_averager(const std::string& distributed_impl,
                                                         const std::string& ddp, const Model& model,
                                                         const ProcessGroupPtr& group) {
  const Tensors parameters = tensors_of(model.named_parameters());
  const Tensors buffers = tensors_of(model.named_buffers());
  if (distributed_impl == kSelfmade) {
    return std::make_unique<Selfmade>(make_synchronizer(ddp, parameters, buffers, group));
  }
  if (distributed_impl == kPytorch) {
    return std::make_unique<Pytorch>(parameters, buffers, group);
  }
  TORCH_CHECK_VALUE(distributed_impl == kPlain, "there is no implementation \"", distributed_impl,
                    "\"");
  return std::make_unique<Plain>(parameters, group);
}

}  // namespace ddp
