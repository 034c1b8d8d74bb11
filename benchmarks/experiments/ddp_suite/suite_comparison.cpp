#include "experiments/ddp_suite/suite_comparison.h"

#include <ATen/ATen.h>

#include "harness/equal_gradients.h"
#include "harness/interleaved.h"
#include "harness/model_summary.h"

namespace ddp {
namespace {

constexpr const char* kNoDdp = "compute only";
constexpr std::size_t kPeer = 1;  // the Reducer's index among them

}  // namespace

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
    add(kNoDdp, std::nullopt);
    return;
  }
  for (const std::int64_t bucket_size : settings.bucket_sizes) {
    for (const std::string& variant : kSuiteVariants) {
      add(variant, bucket_size);
    }
  }
}

void SuiteComparison::check() { check_gradients(variants_, trainers_, kPeer, batch_); }

void SuiteComparison::add(const std::string& variant, std::optional<std::int64_t> bucket_size) {
  TrainerOptions options;
  Parameters labels = {{"variant", variant}};
  if (bucket_size) {
    options.cap_bytes = *bucket_size << 20;
    labels.emplace_back("bucket_size", *bucket_size);
  }
  trainers_.emplace_back(variant, make_model(model_.name, seed_, device_context_.device),
                         device_context_.group, options);
  check_size(trainers_.back());
  optimizers_.emplace_back(trainers_.back().parameters(), kSuiteSgd);
  variants_.push_back(variant);
  labels_.push_back(std::move(labels));
}

void SuiteComparison::check_size(const Trainer& trainer) const {
  const std::int64_t found = summarize_model(trainer.parameters()).total;
  TORCH_CHECK(found == model_.parameters, model_.name, " has ", found, " parameters here, and ",
              model_.parameters, " where it was published: numbers would be of another model");
}

double SuiteComparison::run(std::size_t replica) {
  Trainer& trainer = trainers_[replica];
  barrier(device_context_.group);
  timer_->start();
  trainer.backward(trainer.forward(batch_));
  trainer.finish();
  optimizers_[replica].step();
  timer_->stop();
  return timer_->seconds();
}

std::vector<Series> SuiteComparison::to_series(const at::Tensor& seconds) const {
  std::vector<Series> series;
  series.reserve(labels_.size());
  for (std::size_t replica = 0; replica < labels_.size(); ++replica) {
    series.push_back(series_of(seconds.flatten(0, 1), replica, /*part=*/0, labels_[replica]));
  }
  return series;
}

}  // namespace ddp
