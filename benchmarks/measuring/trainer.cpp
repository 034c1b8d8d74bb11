#include "measuring/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace ddp {
namespace {

constexpr double kLearningRate = 0.01;

constexpr double kTolerance = 1e-3;  // of a gradient's largest value, or of the loss

void expect_equal(const Trainer& trainer, const Trainer& expected) {
  const std::string& variant = trainer.variant();
  for (std::size_t i = 0; i < expected.parameters().size(); ++i) {
    const auto& [name, parameter] = trainer.parameters()[i];
    TORCH_CHECK(parameter.grad().defined(), variant, " leaves ", name, " without a gradient");
    const at::Tensor gradient = expected.parameters()[i].tensor.grad();
    const double largest = gradient.abs().max().item<double>();
    const double difference = (parameter.grad() - gradient).abs().max().item<double>();
    TORCH_CHECK(difference <= kTolerance * largest, variant, "'s gradient of ", name, " is not ",
                expected.variant(), "'s: they differ by ", difference,
                ", and the largest value is ", largest,
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
      options_(options),
      update_(options.update ? options.update(tensors_of(parameters_)) : nullptr) {
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
  if (update_) {
    update_();
  }
  for (const NamedTensor& parameter : parameters_) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) {
      continue;  // the variant has updated it
    }
    if (!options_.optimizer && !update_) {
      parameter.tensor.sub_(gradient, kLearningRate);
    }
    if (options_.zero_gradients) {
      gradient.zero_();
    } else {
      gradient.reset();
    }
  }
}

void check_gradients(std::vector<Trainer>& trainers, const LabelledBatch& batch) {
  for (Trainer& trainer : trainers) {
    trainer.backward(trainer.forward(batch));
    trainer.finish();
  }
  const auto found = std::ranges::find(trainers, kReducer, &Trainer::variant);
  const Trainer& baseline = found == trainers.end() ? trainers.back() : *found;
  for (const Trainer& trainer : trainers) {
    if (trainer.variant() != kComputeOnly) {
      expect_equal(trainer, baseline);
    }
  }
  for (Trainer& trainer : trainers) {
    trainer.update();
  }
}

void check_losses(std::vector<Trainer>& trainers, const LabelledBatch& batch) {
  double first = 0;
  for (Trainer& trainer : trainers) {
    const at::Tensor loss = trainer.forward(batch);
    trainer.backward(loss);
    trainer.finish();
    const auto own = loss.item<double>();
    first = &trainer == trainers.data() ? own : first;
    TORCH_CHECK(std::abs(own - first) <= kTolerance * first, trainer.variant(),
                " ends with other parameters than ", trainers.front().variant(), ": the loss is ",
                own, ", not ", first);
  }
}

}  // namespace ddp
