#include "support/kept_gradients.h"

#include <ATen/ATen.h>

#include "ddp/referee/access_watch.h"
#include "support/compare.h"

namespace ddp::testing {

namespace {

const void* place_of(const at::Tensor& gradient) {
  return gradient.defined() ? gradient.const_data_ptr() : nullptr;
}

}  // namespace

KeptGradients::KeptGradients(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
  keep();
}

void KeptGradients::keep() {
  const OwnAccess own;
  copies_.clear();
  places_.clear();
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor& gradient = parameter.grad();
    copies_.push_back(gradient.defined() ? gradient.detach().clone() : at::Tensor());
    places_.push_back(place_of(gradient));
  }
}

void KeptGradients::add(std::size_t parameter, const at::Tensor& incoming) {
  const OwnAccess own;
  const at::NoGradGuard no_grad;
  at::Tensor& sum = copies_[parameter];
  sum = sum.defined() ? sum + incoming : incoming.detach().clone();
}

std::vector<std::size_t> KeptGradients::changed() const {
  const OwnAccess own;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_identical(parameters_[i].grad(), copies_[i])) {
      found.push_back(i);
    }
  }
  return found;
}

std::vector<std::size_t> KeptGradients::moved() const {
  const OwnAccess own;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (place_of(parameters_[i].grad()) != places_[i]) {
      found.push_back(i);
    }
  }
  return found;
}

}  // namespace ddp::testing
