#include <ATen/ATen.h>

#include <cmath>
#include <string>

#include "ddp/gradient_hooks.h"
#include "experiments/timeline/timeline.h"

namespace ddp {
namespace {

// Records a layer's backward in real time: from the arrival of its output's gradient until the last
// gradient of its parameters is ready.
class BackwardWatch {
 public:
  BackwardWatch(std::shared_ptr<Timeline> timeline, std::string name,
                const std::vector<at::Tensor>& parameters)
      : timeline_(std::move(timeline)), name_(std::move(name)), parameters_(parameters.size()) {
    for (const at::Tensor& parameter : parameters) {
      hooks_.push_back(on_gradient_ready(parameter, [this](const at::Tensor&) { note_ready(); }));
    }
  }
  BackwardWatch(const BackwardWatch&) = delete;
  BackwardWatch& operator=(const BackwardWatch&) = delete;
  ~BackwardWatch() = default;

  void begin() {
    begin_ns_ = steady_ns();
    ready_ = 0;
  }

 private:
  void note_ready() {
    if (++ready_ == parameters_) {
      timeline_->add(SpanKind::kCompute, "backward " + name_, begin_ns_, steady_ns());
    }
  }

  const std::shared_ptr<Timeline> timeline_;
  const std::string name_;
  const std::size_t parameters_;
  std::vector<GradientHook> hooks_;
  std::int64_t begin_ns_ = 0;
  std::size_t ready_ = 0;
};

at::Tensor convolve(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, int stride) {
  return at::relu(at::conv2d(x, w, b, stride, /*padding=*/1));
}

class WatchedModel : public LayeredModel {
 public:
  explicit WatchedModel(const LayeredModelOptions& options)
      : LayeredModel(options.seed, at::kCPU), options_(options) {
    using At = const at::Tensor&;
    add("conv1", {32, 3, 3, 3}, [](At x, At w, At b) { return convolve(x, w, b, 1); });
    add("conv2", {64, 32, 3, 3}, [](At x, At w, At b) { return convolve(x, w, b, 2); });
    add("conv3", {64, 64, 3, 3}, [](At x, At w, At b) { return convolve(x, w, b, 2); });
    add("fc1", {512, 64 * 8 * 8},
        [](At x, At w, At b) { return at::relu(at::linear(x.flatten(1), w, b)); });
    add("fc2", {1000, 512}, at::linear);
    for (const Layer& layer : layers()) {
      if (options_.timeline) {
        watches_.push_back(std::make_unique<BackwardWatch>(options_.timeline, layer.name,
                                                           std::vector{layer.weight, layer.bias}));
      }
    }
  }

 private:
  at::Tensor apply(std::size_t index, const at::Tensor& x, const at::Tensor& weight,
                   const at::Tensor& bias) const override {
    const std::string& name = layers()[index].name;
    if (options_.compute) {
      const auto nanoseconds = [&](const auto& costs) { return std::llround(1e3 * costs[index]); };
      return simulated_compute(LayeredModel::apply(index, x, weight, bias), options_.compute,
                               nanoseconds(options_.costs.forward_us),
                               nanoseconds(options_.costs.backward_us), name);
    }
    const ComputeScope forward(options_.timeline, "forward " + name);
    at::Tensor y = LayeredModel::apply(index, x, weight, bias);
    if (options_.timeline) {
      y.register_hook([watch = watches_[index].get()](const at::Tensor&) { watch->begin(); });
    }
    return y;
  }

  const LayeredModelOptions options_;
  std::vector<std::unique_ptr<BackwardWatch>> watches_;  // in real time
};

}  // namespace

std::unique_ptr<LayeredModel> make_layered_model(const LayeredModelOptions& options) {
  return std::make_unique<WatchedModel>(options);
}

}  // namespace ddp
