#include "measuring/trainer.h"

#include <ATen/ATen.h>

namespace ddp {
namespace {

constexpr double kLearningRate = 0.01;

constexpr double kTolerance = 1e-3;  // of a gradient's largest value

void expect_equal(const std::string& variant, const Trainer& trainer, const std::string& baseline,
                  const Trainer& expected) {
  for (std::size_t i = 0; i < expected.parameters().size(); ++i) {
    const auto& [name, parameter] = trainer.parameters()[i];
    TORCH_CHECK(parameter.grad().defined(), variant, " leaves ", name, " without a gradient");
    const at::Tensor gradient = expected.parameters()[i].tensor.grad();
    const double largest = gradient.abs().max().item<double>();
    const double difference = (parameter.grad() - gradient).abs().max().item<double>();
    TORCH_CHECK(difference <= kTolerance * largest, variant, "'s gradient of ", name, " is not ",
                baseline, "'s: they differ by ", difference, ", and the largest value is ", largest,
                ". There is no point in measuring it; `make test STAGE=",
                stage_of(variant).substr(0, 2), "` says more");
  }
}

}  // namespace

at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& labels) {
  return at::cross_entropy_loss(scores.flatten(0, -2), labels);
}

Trainer::Trainer(const std::string& variant, std::shared_ptr<Model> model,
                 const ProcessGroupPtr& group, const TrainerOptions& options)
    : name_(variant),
      model_(std::move(model)),
      parameters_(model_->named_parameters()),
      variant_(make_variant(variant, *model_, group, options)),
      options_(options) {
  if (options_.timeline) {
    options_.timeline->add_names(parameters_);
  }
}

ComputeScope Trainer::scope(const char* part) const { return {options_.timeline, part}; }

at::Tensor Trainer::forward(const LabelledBatch& batch) {
  if (options_.timeline) {
    options_.timeline->set_group(name_);
  }
  const ComputeScope forward = scope("forward");
  variant_->before_forward();
  const Variant::Forward whole = [&](const at::Tensor& x) { return model_->forward(x); };
  return options_.loss(variant_->forward(whole, batch.inputs), batch.labels);
}

void Trainer::backward(const at::Tensor& loss) {
  const ComputeScope backward = scope("backward");
  variant_->before_backward();
  loss.backward();
}

void Trainer::finish() {
  const ComputeScope finish = scope("finish");
  variant_->finish();
}

void Trainer::update() {
  const ComputeScope optimizer = scope("optimizer");
  const at::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters_) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) {
      continue;  // the variant has updated it
    }
    if (!options_.optimizer) {
      parameter.tensor.sub_(gradient, kLearningRate);
    }
    if (options_.zero_gradients) {
      gradient.zero_();
    } else {
      gradient.reset();
    }
  }
}

void check_gradients(const std::vector<std::string>& variants, std::vector<Trainer>& trainers,
                     std::size_t baseline, const LabelledBatch& batch) {
  for (Trainer& trainer : trainers) {
    trainer.backward(trainer.forward(batch));
    trainer.finish();
  }
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (variants[i] != kComputeOnly) {
      expect_equal(variants[i], trainers[i], variants[baseline], trainers[baseline]);
    }
  }
  for (Trainer& trainer : trainers) {
    trainer.update();
  }
}

at::Tensor measure_steps(const std::string& title, const Size& size,
                         const DeviceContext& device_context, std::vector<Trainer>& trainers,
                         const MeasureStep& measure) {
  keep_freed_memory();
  const Repetitions repetitions = {.measured = size.steps, .warmup = size.warmup};
  Progress progress(title + ", repetitions", repetitions.all(), device_context.group->getRank());
  const at::Tensor times = measure_interleaved(
      repetitions, trainers.size(), [&](std::size_t variant) { return measure(trainers[variant]); },
      &progress);
  return largest_of_ranks(times, device_context);
}

}  // namespace ddp
