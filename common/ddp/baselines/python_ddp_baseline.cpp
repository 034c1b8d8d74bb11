#include "ddp/baselines/python_ddp_baseline.h"

#include <ATen/ATen.h>

#include <utility>

#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

struct Held {
  at::Tensor parameter;
  at::Tensor place;  // in the buffer, in the parameter's shape
  GradientHook hook = {};
};

struct Buffer {
  at::Tensor flat;
  std::vector<Held> held;
  std::size_t ready = 0;
  WorkPtr work = {};

  bool is_full() const { return ready == held.size(); }
};

Buffer make_buffer(const std::vector<std::size_t>& indices,
                   const std::vector<at::Tensor>& parameters) {
  std::int64_t elements = 0;
  for (const std::size_t index : indices) {
    elements += parameters[index].numel();
  }
  Buffer buffer{.flat = at::empty({elements}, parameters[0].options()), .held = {}};
  std::int64_t offset = 0;
  for (const std::size_t index : indices) {
    const at::Tensor& parameter = parameters[index];
    buffer.held.push_back(
        {.parameter = parameter,
         .place = buffer.flat.narrow(0, offset, parameter.numel()).view(parameter.sizes())});
    offset += parameter.numel();
  }
  return buffer;
}

class PythonDdpBaseline : public GradientSynchronizer {
 public:
  PythonDdpBaseline(const std::vector<at::Tensor>& parameters, ProcessGroupPtr group,
                    const PythonDdpOptions& options)
      : group_(std::move(group)), async_(options.async_reduction) {
    const at::NoGradGuard no_grad;
    for (const auto& indices : python_ddp_plan(parameters, options.buffer_elements)) {
      buffers_.push_back(make_buffer(indices, parameters));
    }
    for (Buffer& buffer : buffers_) {  // filled and final: hooks refer to its elements
      for (Held& held : buffer.held) {
        held.hook = on_gradient_ready(
            held.parameter, [this, &buffer, &held](const at::Tensor&) { ready(buffer, held); });
      }
    }
  }

  void finish() override {
    const at::NoGradGuard no_grad;
    for (Buffer& buffer : buffers_) {
      TORCH_CHECK(buffer.is_full(), "Python DDP: ", buffer.held.size() - buffer.ready,
                  " parameters of a buffer have no gradient yet; every parameter must get one in "
                  "every backward");
      if (!async_) {
        launch(buffer);
      }
      std::exchange(buffer.work, nullptr)->wait();
      buffer.ready = 0;
    }
    for (Buffer& buffer : buffers_) {
      for (Held& held : buffer.held) {
        held.parameter.mutable_grad().copy_(held.place);
      }
    }
  }

 private:
  void ready(Buffer& buffer, Held& held) {
    const at::NoGradGuard no_grad;
    held.place.copy_(held.parameter.grad());
    ++buffer.ready;
    if (async_ && buffer.is_full()) {
      launch(buffer);
    }
  }

  void launch(Buffer& buffer) {
    buffer.flat.div_(group_->getSize());
    buffer.work = all_reduce_async(buffer.flat, group_);
  }

  ProcessGroupPtr group_;
  const bool async_;
  std::vector<Buffer> buffers_;
};

}  // namespace

std::vector<std::vector<std::size_t>> python_ddp_plan(const std::vector<at::Tensor>& parameters,
                                                      std::int64_t buffer_elements) {
  std::vector<std::vector<std::size_t>> plan;
  std::int64_t held = 0;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const at::Tensor& parameter = parameters[index];
    TORCH_CHECK(parameter.requires_grad(), "Python DDP: parameter ", index, " is frozen");
    TORCH_CHECK(parameter.options().type_equal(parameters[0].options()), "Python DDP: parameter ",
                index, " is ", parameter.options(), ", but all buffers are ",
                parameters[0].options());
    TORCH_CHECK(parameter.numel() < buffer_elements, "Python DDP: parameter ", index, " has ",
                parameter.numel(), " elements, and a buffer of ", buffer_elements,
                " is to be larger than the largest of them");
    if (plan.empty() || held + parameter.numel() > buffer_elements) {
      plan.emplace_back();
      held = 0;
    }
    plan.back().push_back(index);
    held += parameter.numel();
  }
  return plan;
}

std::unique_ptr<GradientSynchronizer> make_python_ddp_baseline(
    const std::vector<at::Tensor>& parameters, const ProcessGroupPtr& group,
    const PythonDdpOptions& options) {
  return std::make_unique<PythonDdpBaseline>(parameters, group, options);
}

}  // namespace ddp
