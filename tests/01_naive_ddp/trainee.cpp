#include "trainee.h"

#include <ATen/ATen.h>

#include "support/oracle.h"

namespace ddp::testing {

ToyOptions toy_options(const Rank& rank, at::ScalarType dtype) {
  ToyOptions options;
  options.dtype = dtype;
  options.device = settings().device;
  options.rank = rank.rank();
  options.seed = settings().seed;
  return options;
}

Trainee::Trainee(Rank& where, ToyKind kind, const ToyOptions& toy, Form form)
    : options(toy), rank(where.rank()), model(make_toy_model(kind, toy)) {
  where.name(model->named_parameters());
  where.name(model->named_buffers());
  parameters = trainable(model->named_parameters());
  const auto all = tensors_of(model->named_parameters());
  const auto buffers = tensors_of(model->named_buffers());
  synchronizer = form == Form::kFlat ? make_flat_ddp(all, buffers, where.group())
                                     : make_naive_ddp(all, buffers, where.group());
}

void Trainee::backward(int step) {
  toy_loss(*model, make_toy_batch(options, rank, step)).backward();
}

void Trainee::clear_gradients(bool to_none) {
  for (const NamedTensor& parameter : parameters) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (to_none) {
      gradient = at::Tensor();
    } else if (gradient.defined()) {
      gradient = gradient.detach().zero_();
    }
  }
}

std::string gradient_name(const std::string& parameter, ToyKind kind, at::ScalarType dtype) {
  return "the gradient of " + parameter + " (model: " + to_string(kind) + ", " +
         c10::getDtypeNames(dtype).first + ")";
}

}  // namespace ddp::testing
