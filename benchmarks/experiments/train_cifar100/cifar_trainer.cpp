#include "experiments/train_cifar100/cifar_trainer.h"

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <algorithm>

#include "harness/variants.h"
#include "peers/batch_norms.h"

namespace ddp {
namespace {

constexpr double kTolerance = 1e-4;       // for a step's gradients
constexpr std::size_t kReportEvery = 16;  // micro-batches

}  // namespace

CifarTrainer::CifarTrainer(const CifarTrainerOptions& options, const DeviceContext& device_context)
    : options_(options),
      device_context_(device_context),
      model_(make_cifar_model(
          make_batch_norm(batch_norm_of(options.distributed_impl),
                          {.num_features = kCifarHidden, .affine = false}, device_context.group),
          options.seed, device_context.device)),
      parameters_(tensors_of(model_->named_parameters())),
      averager_(make_gradient_averager(options.distributed_impl, options.ddp, *model_,
                                       device_context.group)),
      optimizer_(std::make_unique<torch::optim::SGD>(
          parameters_, torch::optim::SGDOptions(options.learning_rate).momentum(options.momentum))),
      timer_(make_device_timer(device_context.device)) {
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
    const at::Tensor images = at::zeros({2, 3, kCifarSide, kCifarSide}, device_context_.device);
    return model_->forward(images).sum();
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

// Seeds dropout. Returns the numbers of this rank's images, in micro-batches.
std::vector<at::Tensor> CifarTrainer::begin_epoch(const CifarImages& images,
                                                  std::int64_t epoch) const {
  const CifarShard shard = {.rank = device_context_.group->getRank(),
                            .world_size = device_context_.group->getSize(),
                            .seed = options_.seed};
  seed_generators(shard, epoch);
  return shuffled_shard(images.size(), shard).split(options_.batch_size);
}

CifarTrainer::Score CifarTrainer::score(const LabelledBatch& batch) {
  const at::Tensor scores = model_->forward(batch.inputs);
  return {.loss = at::cross_entropy_loss(scores, batch.labels),
          .correct = scores.argmax(1).eq(batch.labels).sum()};
}

CifarTrainer::Score CifarTrainer::backward(const LabelledBatch& batch, bool last_of_step) {
  Score found;
  const auto loss = [&] {
    found = score(batch);
    return found.loss;
  };
  if (last_of_step) {
    averager_->accumulate_and_average(loss);
  } else {
    averager_->accumulate(loss);
  }
  return {.loss = found.loss.detach(), .correct = found.correct};
}

CifarEpoch CifarTrainer::train(const CifarImages& images, std::int64_t epoch,
                               const OnReport& on_report) {
  timer_->start();
  const std::vector<at::Tensor> batches = begin_epoch(images, epoch);
  at::Tensor loss_sum = at::zeros({}, at::device(device_context_.device).dtype(at::kDouble));
  CifarReport last;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const bool last_of_step = (i + 1) % options_.grad_accum_steps == 0;
    const Score found = backward(images.batch(batches[i]), last_of_step);
    loss_sum.add_(found.loss);
    if (last_of_step) {
      optimizer_->step();
      drop_gradients();
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

std::vector<at::Tensor> CifarTrainer::gradients_of_step(const CifarImages& images) {
  const std::vector<at::Tensor> batches = begin_epoch(images, /*epoch=*/0);
  const std::size_t some =
      std::min(batches.size(), static_cast<std::size_t>(options_.grad_accum_steps));
  for (std::size_t i = 0; i < some; ++i) {
    backward(images.batch(batches[i]), /*last_of_step=*/i + 1 == some);
  }
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const at::Tensor& parameter : parameters_) {
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

std::vector<at::Tensor> CifarTrainer::equal_state() const {
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

std::vector<at::Tensor> CifarTrainer::state() const {
  std::vector<at::Tensor> all = equal_state();
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.grad().defined()) {
      all.push_back(all_gather(parameter.grad(), device_context_.group));
    }
  }
  return all;
}

void CifarTrainer::restore(const std::vector<at::Tensor>& state) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> own = equal_state();
  const std::size_t equal = own.size();
  if (state.size() > equal) {
    for (const at::Tensor& parameter : parameters_) {
      own.push_back(parameter.mutable_grad() = at::empty_like(parameter));
    }
  }
  TORCH_CHECK_VALUE(own.size() == state.size(), "the state of training has ", state.size(),
                    " tensors, not ", own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    const at::Tensor saved = i < equal ? state[i] : state[i][device_context_.group->getRank()];
    TORCH_CHECK_VALUE(own[i].sizes() == saved.sizes(), "tensor ", i,
                      " of the state of training is ", saved.sizes(), ", not ", own[i].sizes());
    own[i].copy_(saved);
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
