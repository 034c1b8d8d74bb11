#include "experiments/ddp_suite/comparison.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "harness/interleaved.h"
#include "harness/trainer.h"
#include "harness/workload.h"

namespace ddp {

void MomentumSgd::step() {
  const at::NoGradGuard no_grad;
  const bool is_first = momentum_.empty();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) {
    gradients.push_back(parameter.grad());
    if (is_first) {
      momentum_.push_back(at::empty_like(parameter));
    }
  }
  at::_fused_sgd_(parameters_, gradients, momentum_, kSuiteSgd.weight_decay, kSuiteSgd.momentum,
                  kSuiteSgd.learning_rate, /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                  is_first);
  for (const at::Tensor& parameter : parameters_) {
    parameter.mutable_grad().reset();
  }
}

int SuiteComparison::replicas(const SuiteSettings& settings, const SuiteRound& round) {
  return round.uses_ddp ? static_cast<int>(kSuiteVariants.size() * settings.bucket_sizes.size())
                        : 1;
}

SuiteComparison::SuiteComparison(const SuiteSettings& settings, const SuiteModel& model,
                                 const SuiteRound& round, const DeviceContext& device_context)
    : model_(model),
      seed_(settings.seed),
      device_context_(device_context),
      timer_(make_device_timer(device_context.device)) {
  Workload workload = settings.workload;
  workload.model = model.name;
  batch_ = make_batch(workload, seed_, device_context);
  trainers_.reserve(replicas(settings, round));
  if (!round.uses_ddp) {
    add(kComputeOnly, std::nullopt);
    return;
  }
  for (const std::int64_t bucket_size : settings.bucket_sizes) {
    for (const std::string& variant : kSuiteVariants) {
      add(variant, bucket_size);
    }
  }
}

void SuiteComparison::check() {
  const auto peer = std::ranges::find(variants_, "Reducer") - variants_.begin();
  check_gradients(variants_, trainers_, peer, batch_);
}

void SuiteComparison::add(const std::string& variant, std::optional<std::int64_t> bucket_size) {
  TrainerOptions options;
  Parameters labels = {{"variant", variant}};
  if (bucket_size) {
    options.cap_bytes = *bucket_size << 20;
    labels.emplace_back("bucket_size", *bucket_size);
  }
  trainers_.emplace_back(variant, make_model(model_.name, seed_, device_context_.device),
                         device_context_.group, options);
  const std::int64_t found = summarize_model(trainers_.back().parameters()).total;
  TORCH_CHECK(found == model_.parameters, model_.name, " has ", found, " parameters here, and ",
              model_.parameters, " where it was published: numbers would be of another model");
  optimizers_.emplace_back(tensors_of(trainers_.back().parameters()));
  variants_.push_back(variant);
  labels_.push_back(std::move(labels));
}

double SuiteComparison::run(std::size_t replica) {
  Trainer& trainer = trainers_[replica];
  return seconds_together(*timer_, device_context_.group, [&] {
    trainer.backward(trainer.forward(batch_));
    trainer.finish();
    optimizers_[replica].step();
  });
}

std::vector<Series> SuiteComparison::to_series(const at::Tensor& seconds) const {
  std::vector<Series> series;
  for (std::size_t replica = 0; replica < labels_.size(); ++replica) {
    series.push_back(series_of(seconds.flatten(0, 1), replica, /*part=*/0, labels_[replica]));
  }
  return series;
}

}  // namespace ddp
