#include "harness/trainer.h"

#include <ATen/ATen.h>

namespace ddp {

namespace {
constexpr double kLearningRate = 0.01;
}  // namespace

at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& labels) {
  return at::cross_entropy_loss(scores, labels);
}

Trainer::Trainer(const std::string& variant, std::unique_ptr<Model> model,
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
    parameter.tensor.sub_(gradient, kLearningRate);
    if (options_.zero_gradients) {
      gradient.zero_();
    } else {
      gradient.reset();
    }
  }
}

}  // namespace ddp
