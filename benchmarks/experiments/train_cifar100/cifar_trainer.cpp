#include "experiments/train_cifar100/cifar_trainer.h"

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <algorithm>

#include "harness/variants.h"

namespace ddp {
namespace {

constexpr double kTolerance = 1e-4;  // for a step's gradients

}  // namespace

CifarTrainer::CifarTrainer(const CifarTrainerOptions& options, const DeviceContext& device_context)
    : options_(options),
      device_context_(device_context),
      model_(make_cifar_model(
          {.batch_norm = batch_norm_of(options.distributed_impl), .seed = options.seed},
          device_context)),
      parameters_(tensors_of(model_->named_parameters())),
      averager_(make_gradient_averager(options.distributed_impl, options.ddp, *model_,
                                       device_context.group)),
      optimizer_(std::make_unique<torch::optim::SGD>(
          parameters_, torch::optim::SGDOptions(options.learning_rate).momentum(options.momentum))),
      timer_(make_device_timer(device_context.device)),
      totals_(at::zeros({2}, at::device(device_context.device).dtype(at::kDouble))) {
  momenta_.reserve(parameters_.size());
  for (const at::Tensor& parameter : parameters_) {
    // The optimizer would create them in the first step; initial zeros have the same effect.
    const at::Tensor& momentum = momenta_.emplace_back(at::zeros_like(parameter.detach()));
    auto state = std::make_unique<torch::optim::SGDParamState>();
    state->momentum_buffer(momentum);
    optimizer_->state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  }
  settle();
}

CifarTrainer::~CifarTrainer() = default;

// The Reducer makes new buckets after the first step. Its buckets can affect the order in which
// many ranks' gradients are added, so a run that continues from a checkpoint must begin with the
// same buckets as a run that was never stopped.
void CifarTrainer::settle() {
  const std::vector<NamedTensor> statistics = model_->named_buffers();
  std::vector<at::Tensor> before;
  before.reserve(statistics.size());
  for (const NamedTensor& one : statistics) {
    before.push_back(one.tensor.clone());
  }
  averager_->accumulate_and_average([this] {
    const at::Tensor image = at::zeros({1, 3, kCifarSide, kCifarSide}, device_context_.device);
    return model_->forward(image).sum();
  });
  drop_gradients();
  for (std::size_t i = 0; i < statistics.size(); ++i) {
    statistics[i].tensor.copy_(before[i]);
  }
}

// As zero_grad() does, which does not accept views, as a stage's gradients may be.
void CifarTrainer::drop_gradients() {
  for (const at::Tensor& parameter : parameters_) {
    parameter.mutable_grad().reset();
  }
}

at::Tensor CifarTrainer::score(const LabelledBatch& batch) {
  const at::Tensor scores = model_->forward(batch.inputs);
  at::Tensor loss = at::cross_entropy_loss(scores, batch.labels);
  const at::Tensor correct = scores.argmax(1).eq(batch.labels).sum();
  totals_[0].add_(loss.detach().to(at::kDouble) * batch.labels.size(0));
  totals_[1].add_(correct);
  return loss;
}

void CifarTrainer::step(const CifarImages& images, const std::vector<at::Tensor>& micro_batches) {
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    const LabelledBatch batch = images.batch(micro_batches[i]);
    const auto loss = [&] { return score(batch).div(static_cast<double>(micro_batches.size())); };
    if (i + 1 < micro_batches.size()) {
      averager_->accumulate(loss);
    } else {
      averager_->accumulate_and_average(loss);
    }
  }
}

CifarPass CifarTrainer::read_pass(std::int64_t images) {
  timer_->stop();
  const at::Tensor totals = totals_.cpu();
  return {.loss_sum = totals[0].item<double>(),
          .correct = totals[1].item<double>(),
          .images = static_cast<double>(images),
          .seconds = timer_->seconds()};
}

CifarPass CifarTrainer::train(const CifarImages& images, std::int64_t epoch) {
  const CifarShard shard = {.rank = device_context_.group->getRank(),
                            .world_size = device_context_.group->getSize(),
                            .seed = options_.seed,
                            .epoch = epoch};
  seed_generators(shard);
  totals_.zero_();
  timer_->start();
  const at::Tensor order = shuffled_shard(images.size(), shard);
  for (const at::Tensor& group : order.split(options_.batch_size * options_.grad_accum_steps)) {
    step(images, group.split(options_.batch_size));
    optimizer_->step();
    drop_gradients();
  }
  return read_pass(order.size(0));
}

CifarPass CifarTrainer::validate(const CifarImages& images) {
  const at::NoGradGuard no_grad;
  model_->train(false);
  totals_.zero_();
  timer_->start();
  const at::Tensor mine = validation_shard(images.size(), device_context_.group->getRank(),
                                           device_context_.group->getSize());
  if (mine.numel() > 0) {
    for (const at::Tensor& numbers : mine.split(options_.batch_size)) {
      score(images.batch(numbers));
    }
  }
  model_->train(true);
  return read_pass(mine.size(0));
}

std::vector<at::Tensor> CifarTrainer::gradients_of_step(const CifarImages& images) {
  const CifarShard shard = {.rank = device_context_.group->getRank(),
                            .world_size = device_context_.group->getSize(),
                            .seed = options_.seed};
  seed_generators(shard);
  const at::Tensor order = shuffled_shard(images.size(), shard);
  const std::int64_t some =
      std::min(order.size(0), options_.batch_size * options_.grad_accum_steps);
  step(images, order.narrow(0, 0, some).split(options_.batch_size));
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const at::Tensor& parameter : parameters_) {
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

std::vector<at::Tensor> CifarTrainer::state() const {
  std::vector<at::Tensor> all;
  all.reserve(parameters_.size());
  for (const at::Tensor& parameter : parameters_) {
    all.push_back(parameter.detach());
  }
  const std::vector<at::Tensor> statistics = tensors_of(model_->named_buffers());
  all.insert(all.end(), statistics.begin(), statistics.end());
  all.insert(all.end(), momenta_.begin(), momenta_.end());
  return all;
}

void CifarTrainer::restore(const std::vector<at::Tensor>& state) {
  const std::vector<at::Tensor> own = this->state();
  TORCH_CHECK_VALUE(own.size() == state.size(), "the state of training has ", state.size(),
                    " tensors, not ", own.size());
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < own.size(); ++i) {
    TORCH_CHECK_VALUE(own[i].sizes() == state[i].sizes(), "tensor ", i,
                      " of the state of training is ", state[i].sizes(), ", not ", own[i].sizes());
    own[i].copy_(state[i]);
  }
}

void check_cifar_step(const CifarTrainerOptions& options, const CifarImages& images,
                      const DeviceContext& device_context) {
  CifarTrainerOptions plain_options = options;
  plain_options.distributed_impl = kPlain;
  CifarTrainer plain(plain_options, device_context), trainer(options, device_context);
  const std::vector<at::Tensor> expected = plain.gradients_of_step(images);
  const std::vector<at::Tensor> found = trainer.gradients_of_step(images);
  // Relative to all gradients: that of a bias before batch normalization is nothing but rounding.
  double largest = 0;
  for (const at::Tensor& gradient : expected) {
    largest = std::max(largest, gradient.abs().max().item<double>());
  }
  const bool own = options.distributed_impl == kSelfmade;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    TORCH_CHECK(found[i].defined(), options.distributed_impl, " leaves parameter ", i,
                " without a gradient");
    const double difference = (found[i] - expected[i]).abs().max().item<double>();
    TORCH_CHECK(difference <= kTolerance * largest, options.distributed_impl,
                "'s gradient of parameter ", i, " is off by ", difference,
                ", and the largest gradient is ", largest,
                ". There is no point in training with it",
                own ? "; `make test STAGE=" + stage_of(options.ddp).substr(0, 2) +
                          "` and `make test STAGE=04` say more"
                    : "");
  }
}

}  // namespace ddp
