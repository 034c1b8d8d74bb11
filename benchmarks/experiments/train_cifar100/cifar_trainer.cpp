#include "experiments/train_cifar100/cifar_trainer.h"

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include "baselines/batch_norms.h"

namespace ddp {

namespace {

constexpr std::size_t kReportEvery = 16;  // micro-batches

}  // namespace

CifarTrainer::CifarTrainer(const CifarTrainerOptions& options, const DeviceContext& device_context)
    : options_(options),
      device_context_(device_context),
      model_(make_cifar_model(
          make_batch_norm(
              options.distributed_impl == kPytorch ? kBaselineBatchNorm : kStageBatchNorm,
              {.num_features = kCifarHidden, .affine = false}, device_context.group),
          options.seed, device_context.device)),
      parameters_(tensors_of(model_->named_parameters())),
      variant_(make_variant(options.distributed_impl == kPytorch ? "Reducer" : options.ddp, *model_,
                            device_context.group)),
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
    const auto no_sync = last_of_step ? nullptr : variant_->no_sync();
    variant_->before_forward();
    const Score found = score(images.batch(batches[i]));
    variant_->before_backward();
    found.loss.backward();
    loss_sum.add_(found.loss.detach());
    if (last_of_step) {
      variant_->finish();
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
