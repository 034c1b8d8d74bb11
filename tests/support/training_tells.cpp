#include <ATen/ATen.h>

#include "ddp/referee/access_watch.h"
#include "support/body.h"
#include "support/compare.h"
#include "support/training.h"
#include "support/training_evidence.h"

// What a Training hands in.

namespace ddp::testing {

void Training::hand_in_local() {
  const OwnAccess own;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool seen = options_.layers[i].trainable;  // by the tap
    const at::Tensor& gradient = parameters_[i].grad();
    const auto index = static_cast<std::int64_t>(i);
    client_.value("local", seen ? gradients_.of(i) : gradient, index);
    if (seen && !gradients_.of(i).defined()) {
      tell_rare(client_, kUndefined);
    }
    if (gradient.defined() && gradient.layout() == at::kStrided && !gradient.is_contiguous()) {
      client_.fact(kStridedGradient, fingerprint(at::tensor(gradient.strides(), at::kLong)), index);
    }
  }
}

void Training::hand_in(const std::string& name) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    client_.value(name, parameters_[i].grad(), static_cast<std::int64_t>(i));
  }
}

void Training::tell_touched(std::size_t layer, const char* after) {
  client_.fact(std::string(kTouchedGradient) + after, 1, static_cast<std::int64_t>(layer));
}

void Training::expect(const KeptGradients& expected, const char* after) {
  for (const std::size_t layer : expected.changed()) {
    tell_touched(layer, after);
  }
}

void Training::keep_state(const std::vector<const void*>& places) {
  kept_.clear();
  for (const auto* tensors : {&parameters_, &buffers_}) {
    for (std::size_t i = 0; i < tensors->size(); ++i) {
      const at::Tensor& tensor = (*tensors)[i];
      const char* const what = tensors == &parameters_ ? "parameter" : "buffer";
      client_.value(what, tensor, static_cast<std::int64_t>(i));
      if (!tensor.is_contiguous()) {
        client_.fact(std::string(kStrided) + what, 1, static_cast<std::int64_t>(i));
      }
      if (tensor.const_data_ptr() != places[kept_.size()]) {
        client_.fact(std::string("moved ") + what, 1, static_cast<std::int64_t>(i));
      }
      kept_.push_back(tensor.clone());
    }
  }
}

void Training::look_at_state() {
  const OwnAccess own;
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const bool parameter = i < parameters_.size();
    const std::size_t index = parameter ? i : i - parameters_.size();
    if (!same_bits(parameter ? parameters_[index] : buffers_[index], kept_[i])) {
      client_.fact(parameter ? "touched parameter" : "touched buffer", 1,
                   static_cast<std::int64_t>(index));
    }
    if (parameter && parameters_[i].requires_grad() != requires_grad_[i]) {
      client_.fact("touched requires_grad of parameter", 1, static_cast<std::int64_t>(i));
    }
  }
}

}  // namespace ddp::testing
