#include "experiments/train_cifar100/cifar_trainer.h"

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include "01_naive_ddp/naive_ddp.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "03_bucketed_ddp/bucketed_ddp.h"
#include "ddp/peers/reducer_peer.h"
#include "peers/batch_norms.h"

namespace ddp {

class GradientAverager {
 public:
  /// Forward: returns the loss of a micro-batch.
  using Loss = std::function<at::Tensor()>;

  GradientAverager() = default;
  GradientAverager(const GradientAverager&) = delete;
  GradientAverager& operator=(const GradientAverager&) = delete;
  virtual ~GradientAverager() = default;

  /// Forward and backward. After a step's last micro-batch gradients are the averages over the ranks
  /// of the accumulated ones; before, they may stay local to this rank.
  virtual void accumulate(const Loss& loss, bool last_of_step) = 0;
};

namespace {

constexpr std::size_t kReportEvery = 16;  // micro-batches

using Tensors = std::vector<at::Tensor>;

class Selfmade : public GradientAverager {
 public:
  explicit Selfmade(std::unique_ptr<GradientSynchronizer> synchronizer)
      : synchronizer_(std::move(synchronizer)) {}

  void accumulate(const Loss& loss, bool last_of_step) override {
    if (last_of_step) {
      loss().backward();
      synchronizer_->finish();
    } else {
      const NoSync no_sync(*synchronizer_);
      loss().backward();
    }
  }

 private:
  std::unique_ptr<GradientSynchronizer> synchronizer_;
};

// The published program trains with DistributedDataParallel without no_sync(), which averages what
// has been accumulated after each micro-batch. The last average is the same.
class Pytorch : public GradientAverager {
 public:
  Pytorch(const Tensors& parameters, const Tensors& buffers, const ProcessGroupPtr& group)
      : peer_(parameters, buffers, group) {}

  void accumulate(const Loss& loss, bool) override {
    peer_.before_forward();
    const at::Tensor value = loss();
    peer_.before_backward();
    value.backward();
  }

 private:
  ReducerPeer peer_;
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

std::unique_ptr<GradientAverager> make_averager(const CifarTrainerOptions& options,
                                                const Model& model, const ProcessGroupPtr& group) {
  const Tensors parameters = tensors_of(model.named_parameters());
  const Tensors buffers = tensors_of(model.named_buffers());
  if (options.distributed_impl == kPytorch) {
    return std::make_unique<Pytorch>(parameters, buffers, group);
  }
  return std::make_unique<Selfmade>(make_synchronizer(options.ddp, parameters, buffers, group));
}

std::shared_ptr<BatchNorm> make_hidden_norm(const std::string& distributed_impl,
                                            const ProcessGroupPtr& group) {
  return make_batch_norm(distributed_impl == kPytorch ? kPeerBatchNorm : kStageBatchNorm,
                         {.num_features = kCifarHidden, .affine = false}, group);
}

}  // namespace

CifarTrainer::CifarTrainer(const CifarTrainerOptions& options, const DeviceContext& device_context)
    : options_(options),
      device_context_(device_context),
      model_(make_cifar_model(make_hidden_norm(options.distributed_impl, device_context.group),
                              options.seed, device_context.device)),
      parameters_(tensors_of(model_->named_parameters())),
      averager_(make_averager(options, *model_, device_context.group)),
      optimizer_(std::make_unique<torch::optim::SGD>(
          parameters_, torch::optim::SGDOptions(options.learning_rate).momentum(options.momentum))),
      timer_(make_device_timer(device_context.device)) {}

CifarTrainer::~CifarTrainer() = default;

CifarTrainer::Score CifarTrainer::score(const LabelledBatch& batch) {
  const at::Tensor scores = model_->forward(batch.inputs);
  return {.loss = at::cross_entropy_loss(scores, batch.labels),
          .correct = scores.argmax(1).eq(batch.labels).sum()};
}

CifarEpoch CifarTrainer::train(const CifarImages& images, std::int64_t epoch,
                               const OnReport& on_report) {
  timer_->start();
  const CifarShard shard = {.rank = device_context_.group->getRank(),
                            .world_size = device_context_.group->getSize(),
                            .seed = options_.seed};
  seed_generators(shard, epoch);
  const std::vector<at::Tensor> batches =
      shuffled_shard(images.size(), shard).split(options_.batch_size);
  at::Tensor loss_sum = at::zeros({}, at::device(device_context_.device).dtype(at::kDouble));
  CifarReport last;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const bool last_of_step = (i + 1) % options_.grad_accum_steps == 0;
    Score found;
    averager_->accumulate(
        [&] {
          found = score(images.batch(batches[i]));
          return found.loss;
        },
        last_of_step);
    loss_sum.add_(found.loss.detach());
    if (last_of_step) {
      optimizer_->step();
      // As zero_grad() does, which does not accept views, as a stage's gradients may be.
      for (const at::Tensor& parameter : parameters_) {
        parameter.mutable_grad().reset();
      }
    }
    if (i % kReportEvery == 0) {
      last = {.loss = loss_sum.item<double>() / static_cast<double>(batches.size()),
              .accuracy = found.correct.item<double>() / static_cast<double>(batches[i].size(0))};
      on_report(last);
    }
  }
  timer_->stop();
  return {.last_report = last, .seconds = timer_->seconds()};
}

CifarValidation CifarTrainer::validate(const CifarImages& images) {
  const at::NoGradGuard no_grad;
  model_->train(false);
  timer_->start();
  const at::Tensor mine = validation_shard(images.size(), device_context_.group->getRank(),
                                           device_context_.group->getSize());
  at::Tensor totals = at::zeros({2}, at::device(device_context_.device).dtype(at::kDouble));
  if (mine.numel() > 0) {
    for (const at::Tensor& numbers : mine.split(options_.batch_size)) {
      const Score found = score(images.batch(numbers));
      totals[0].add_(found.loss.to(at::kDouble) * numbers.size(0));
      totals[1].add_(found.correct);
    }
  }
  model_->train(true);
  timer_->stop();
  return {.loss_sum = totals[0].item<double>(),
          .correct = totals[1].item<double>(),
          .images = static_cast<double>(mine.size(0)),
          .seconds = timer_->seconds()};
}

}  // namespace ddp
