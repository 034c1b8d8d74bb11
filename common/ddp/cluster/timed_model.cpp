#include "ddp/cluster/timed_model.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ddp/cluster/operators.h"
#include "ddp/timeline/simulated_compute.h"

namespace ddp::cluster {

namespace {

namespace autograd = torch::autograd;

// Passes on x; its backward produces the gradient of the parameter. Each parameter has a node of its
// own, since the order of gradients that come from one node would be autograd's choice.
class UsesParameter : public autograd::Function<UsesParameter> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& parameter) {
    context->save_for_backward({parameter});
    return at::empty_like(x);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          autograd::variable_list gradient) {
    return {gradient[0], at::empty_like(context->get_saved_variables()[0])};
  }
};

// Passes on x, and keeps so many bytes until its backward.
class Keeps : public autograd::Function<Keeps> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x,
                            std::int64_t bytes) {
    context->save_for_backward({at::empty({bytes}, x.options().dtype(at::kByte))});
    return at::empty_like(x);
  }

  static autograd::variable_list backward(autograd::AutogradContext*,
                                          autograd::variable_list gradient) {
    return {gradient[0], at::Tensor()};
  }
};

void check(const TimedLayer& layer) {
  TORCH_CHECK_VALUE(layer.forward_ns >= 0 && layer.backward_ns >= 0, "the layer \"", layer.name,
                    "\" takes ", layer.forward_ns, " ns forward and ", layer.backward_ns,
                    " ns backward, but no layer takes negative time");
  for (const at::Tensor& parameter : layer.parameters) {
    TORCH_CHECK_VALUE(parameter.defined() && parameter.is_meta() && parameter.is_leaf() &&
                          parameter.requires_grad(),
                      "a parameter of the layer \"", layer.name,
                      "\" is no leaf on the meta device that requires a gradient");
  }
}

void call(const std::function<void()>& part) {
  if (part) {
    part();
  }
}

}  // namespace

at::Tensor make_parameter(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::device(at::kMeta).dtype(dtype)).set_requires_grad(true);
}

TimedModel::TimedModel(Cluster& cluster, std::vector<TimedLayer> layers,
                       std::vector<at::Tensor> parameters, const HostTimes& host)
    : cluster_(cluster), layers_(std::move(layers)), source_(make_parameter({})), host_(host) {
  for (const TimedLayer& layer : layers_) {
    check(layer);
    for (const at::Tensor& parameter : layer.parameters) {
      forbid_memory(parameter);
      in_order_.push_back(parameter);
    }
  }
  parameters_ = parameters.empty() ? in_order_ : std::move(parameters);
  const auto same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
  TORCH_CHECK_VALUE(std::ranges::is_permutation(parameters_, in_order_, same), "the layers have ",
                    in_order_.size(), " parameters, and the ", parameters_.size(),
                    " that are listed are not the same");
}

at::Tensor TimedModel::forward(std::size_t first, std::size_t last, at::Tensor x,
                               const std::vector<at::Tensor>& parameters) const {
  auto parameter = parameters.begin();
  for (std::size_t i = first; i < last; ++i) {
    const TimedLayer& layer = layers_[i];
    for (std::size_t used = 0; used < layer.parameters.size(); ++used) {
      x = UsesParameter::apply(x, *parameter++);
    }
    if (layer.activation_bytes > 0) {
      x = Keeps::apply(x, layer.activation_bytes);
    }
    const ComputeListener compute = [this, &layer](std::int64_t ns, const std::string& name) {
      cluster_.compute(ns, name,
                       in_backward_ ? HostWork{host_.backward_ns, layer.backward_kernels}
                                    : HostWork{host_.forward_ns, layer.forward_kernels});
    };
    x = simulated_compute(x, compute, layer.forward_ns, layer.backward_ns, layer.name);
  }
  return x;
}

StepTimes TimedModel::step(const StepParts& parts) {
  source_.mutable_grad() = at::Tensor();
  for (at::Tensor& parameter : parameters_) {
    parameter.mutable_grad() = at::Tensor();
  }
  StepTimes times;
  cluster_.begin_step();
  MetaMemory* const memory = MetaMemory::current();
  if (memory != nullptr) {
    memory->reset_peak();
  }
  cluster_.run([&] {
    std::optional<MemoryScope> scope(std::in_place, MemoryKind::kActivations, "forward");
    call(parts.before_forward);
    in_backward_ = false;
    // So that backward reaches layers without parameters, too.
    const at::Tensor x = UsesParameter::apply(at::empty({}, source_.options()), source_);
    const at::Tensor y =
        parts.forward ? parts.forward(x) : forward(0, layers_.size(), x, in_order_);
    times.forward_ns = cluster_.clocks().now();
    scope.reset();
    scope.emplace(MemoryKind::kGradients, "backward");
    call(parts.before_backward);
    in_backward_ = true;
    y.backward(at::empty_like(y));
    times.backward_ns = cluster_.clocks().now() - times.forward_ns;
    times.host_backward_end_ns = cluster_.clocks().host();
    scope.reset();
    scope.emplace(MemoryKind::kGradients, "finish");
    call(parts.finish);
  });
  times.most = memory != nullptr ? memory->peak() : MemoryUse();
  const Clocks clocks = cluster_.clocks();
  times.finish_ns = clocks.now() - times.forward_ns - times.backward_ns;
  times.total_ns = std::max(clocks.now(), clocks.communication());
  times.waiting_ns = clocks.waited();
  for (const Span& span : cluster_.spans()) {
    if (span.kind == SpanKind::kCommunication) {
      ++times.collectives;
      times.communication_ns += span.end_ns - span.begin_ns;
    }
  }
  return times;
}

StepTimes TimedModel::step(GradientSynchronizer& synchronizer) {
  return step({.finish = [&] { synchronizer.finish(); }});
}

}  // namespace ddp::cluster
