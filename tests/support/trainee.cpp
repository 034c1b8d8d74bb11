#include "support/trainee.h"

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

Trainee::Trainee(Rank& where, ToyKind toy, const ToyOptions& toy_options,
                 const MakeSynchronizer& make)
    : kind(toy),
      options(toy_options),
      rank(where.rank()),
      model(make_toy_model(toy, toy_options)),
      parameters(trainable(model->named_parameters())) {
  where.name(model->named_parameters());
  where.name(model->named_buffers());
  synchronizer = make(tensors_of(model->named_parameters()), tensors_of(model->named_buffers()),
                      where.group());
}

void Trainee::backward(int step) {
  toy_loss(*model, make_toy_batch(options, rank, step)).backward();
}

void clear_gradients(const std::vector<NamedTensor>& parameters, bool to_none) {
  for (const NamedTensor& parameter : parameters) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (to_none) {
      gradient = at::Tensor();
    } else if (gradient.defined()) {
      gradient = gradient.detach().zero_();
    }
  }
}

at::Tensor or_zero(const at::Tensor& gradient, const at::Tensor& like) {
  return gradient.defined() ? gradient : at::zeros_like(like);
}

std::string gradient_name(const std::string& parameter, ToyKind kind, at::ScalarType dtype) {
  return "the gradient of " + parameter + " (model: " + to_string(kind) + ", " +
         c10::getDtypeNames(dtype).first + ")";
}

}  // namespace ddp::testing
