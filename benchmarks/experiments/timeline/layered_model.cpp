#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <functional>
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

struct Layer {
  std::string name;
  at::Tensor weight, bias;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b)> apply;
  std::unique_ptr<BackwardWatch> watch;  // in real time
};

at::Tensor convolve(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, int stride) {
  return at::relu(at::conv2d(x, w, b, stride, /*padding=*/1));
}

class LayeredModel : public Model {
 public:
  explicit LayeredModel(const LayeredModelOptions& options)
      : options_(options), generator_(at::detail::createCPUGenerator(options.seed)) {
    using At = const at::Tensor&;
    add_layer({32, 3, 3, 3}, [](At x, At w, At b) { return convolve(x, w, b, 1); });
    add_layer({64, 32, 3, 3}, [](At x, At w, At b) { return convolve(x, w, b, 2); });
    add_layer({64, 64, 3, 3}, [](At x, At w, At b) { return convolve(x, w, b, 2); });
    add_layer({512, 64 * 8 * 8},
              [](At x, At w, At b) { return at::relu(at::linear(x.flatten(1), w, b)); });
    add_layer({1000, 512}, [](At x, At w, At b) { return at::linear(x, w, b); });
  }

  std::vector<ModelUnit> units() const {
    std::vector<ModelUnit> units;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      units.push_back({{layers_[i].weight, layers_[i].bias},
                       [this, i](const at::Tensor& x, const std::vector<at::Tensor>& own) {
                         const at::Tensor y = through(x, i, own[0], own[1]);
                         return y.view_as(y);  // a hook on it comes before the layer's backward
                       }});
    }
    return units;
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      x = through(x, i, layers_[i].weight, layers_[i].bias);
    }
    return x;
  }

  std::vector<NamedTensor> named_parameters() const override {
    std::vector<NamedTensor> named;
    for (const Layer& layer : layers_) {
      named.push_back({layer.name + ".weight", layer.weight});
      named.push_back({layer.name + ".bias", layer.bias});
    }
    return named;
  }

  std::vector<NamedTensor> named_buffers() const override { return {}; }
  void train(bool) override {}

 private:
  void add_layer(at::IntArrayRef shape, decltype(Layer::apply) apply) {
    const auto fan_in = static_cast<double>(c10::multiply_integers(shape.slice(1)));
    const auto random = [&](at::IntArrayRef sizes) {
      const double bound = 1 / std::sqrt(fan_in);
      return at::empty(sizes).uniform_(-bound, bound, generator_).set_requires_grad(true);
    };
    Layer layer{.name = kLayerNames[layers_.size()],
                .weight = random(shape),
                .bias = random({shape[0]}),
                .apply = std::move(apply),
                .watch = nullptr};
    if (options_.timeline) {
      layer.watch = std::make_unique<BackwardWatch>(options_.timeline, layer.name,
                                                    std::vector{layer.weight, layer.bias});
    }
    layers_.push_back(std::move(layer));
  }

  at::Tensor through(const at::Tensor& x, std::size_t index, const at::Tensor& weight,
                     const at::Tensor& bias) const {
    const Layer& layer = layers_[index];
    if (options_.compute) {
      const auto nanoseconds = [&](const auto& costs) { return std::llround(1e3 * costs[index]); };
      return simulated_compute(layer.apply(x, weight, bias), options_.compute,
                               nanoseconds(options_.costs.forward_us),
                               nanoseconds(options_.costs.backward_us), layer.name);
    }
    const ComputeScope forward(options_.timeline, "forward " + layer.name);
    at::Tensor y = layer.apply(x, weight, bias);
    if (layer.watch) {
      y.register_hook([watch = layer.watch.get()](const at::Tensor&) { watch->begin(); });
    }
    return y;
  }

  const LayeredModelOptions options_;
  at::Generator generator_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<Model> make_layered_model(const LayeredModelOptions& options) {
  return std::make_unique<LayeredModel>(options);
}

std::vector<ModelUnit> layers_of(const Model& layered) {
  return dynamic_cast<const LayeredModel&>(layered).units();
}

}  // namespace ddp
