#include "models/small_models.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <string>

#include "ddp/batch_norm.h"

namespace ddp {
namespace {

constexpr std::int64_t kCifarClasses = 100;
constexpr std::int64_t kChannels = 32;
constexpr std::int64_t kPooledSide = (32 - 4) / 2;  // each convolution removes 2
constexpr std::int64_t kFlat = kChannels * kPooledSide * kPooledSide;
constexpr double kDropoutOfConvolutions = 0.25;
constexpr double kDropoutOfHidden = 0.5;

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::conv2d(x, weight, bias);
}

class CifarModel : public LayeredModel {
 public:
  CifarModel(std::shared_ptr<BatchNorm> batch_norm, std::uint64_t seed, const at::Device& device)
      : LayeredModel(seed, device), batch_norm_(std::move(batch_norm)) {
    add("conv1", {kChannels, 3, 3, 3}, convolution);
    add("conv2", {kChannels, kChannels, 3, 3}, convolution);
    add("fc1", {kCifarHidden, kFlat}, at::linear);
    add("fc2", {kCifarClasses, kCifarHidden}, at::linear);
    batch_norm_->to(device);
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = layer(1, layer(0, images).relu_()).relu_();
    x = at::dropout(at::max_pool2d(x, /*kernel_size=*/2), kDropoutOfConvolutions, training_);
    x = batch_norm_->forward(layer(2, x.flatten(1))).relu_();
    return layer(3, at::dropout(x, kDropoutOfHidden, training_));
  }

  std::vector<NamedTensor> named_buffers() const override {
    std::vector<NamedTensor> buffers;
    for (const auto& buffer : batch_norm_->named_buffers()) {
      buffers.push_back({"bn1." + buffer.key(), buffer.value()});
    }
    return buffers;
  }

  void train(bool on) override {
    training_ = on;
    batch_norm_->train(on);
  }

 private:
  at::Tensor layer(std::size_t i, const at::Tensor& x) const {
    return apply(i, x, layers()[i].weight, layers()[i].bias);
  }

  std::shared_ptr<BatchNorm> batch_norm_;
  bool training_ = true;
};

}  // namespace

at::Tensor through(const std::vector<ModelUnit>& units, at::Tensor x) {
  for (const ModelUnit& unit : units) {
    x = unit.function(x, unit.parameters);
  }
  return x;
}

LayeredModel::LayeredModel(std::uint64_t seed, const at::Device& device)
    : generator_(at::detail::createCPUGenerator(seed)), device_(device) {}

void LayeredModel::add(const std::string& name, at::IntArrayRef shape, Function function) {
  const double bound = 1 / std::sqrt(c10::multiply_integers(shape.slice(1)));
  const auto random = [&](at::IntArrayRef sizes) {
    const at::Tensor values = at::empty(sizes).uniform_(-bound, bound, generator_);
    return values.to(device_).set_requires_grad(true);
  };
  layers_.push_back({.name = name,
                     .weight = random(shape),
                     .bias = random(shape[0]),
                     .function = std::move(function)});
}

std::vector<NamedTensor> LayeredModel::named_parameters() const {
  std::vector<NamedTensor> parameters;
  for (const Layer& layer : layers_) {
    parameters.push_back({layer.name + ".weight", layer.weight});
    parameters.push_back({layer.name + ".bias", layer.bias});
  }
  return parameters;
}

std::vector<ModelUnit> LayeredModel::units() const {
  std::vector<ModelUnit> units;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    units.push_back({{layers_[i].weight, layers_[i].bias},
                     [this, i](const at::Tensor& x, const std::vector<at::Tensor>& own) {
                       const at::Tensor y = apply(i, x, own[0], own[1]);
                       return y.view_as(y);  // a hook on it comes before the layer's backward
                     }});
  }
  return units;
}

std::unique_ptr<LayeredModel> make_mlp(const std::vector<std::int64_t>& widths, std::uint64_t seed,
                                       at::Device device) {
  auto mlp = std::make_unique<LayeredModel>(seed, device);
  for (std::size_t i = 1; i < widths.size(); ++i) {
    mlp->add("layer" + std::to_string(i), {widths[i], widths[i - 1]},
             [first = i == 1](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
               return at::linear(first ? x : at::relu(x), w, b);
             });
  }
  return mlp;
}

std::unique_ptr<Model> make_cifar_model(std::shared_ptr<BatchNorm> batch_norm, std::uint64_t seed,
                                        const at::Device& device) {
  return std::make_unique<CifarModel>(std::move(batch_norm), seed, device);
}

}  // namespace ddp
