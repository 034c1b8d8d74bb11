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

struct Layer {
  std::string name;
  at::Tensor weight, bias;
};

// Layers with weights and biases, which are drawn in this order.
class LayeredModel : public Model {
 public:
  LayeredModel(std::uint64_t seed, const at::Device& device)
      : generator_(at::detail::createCPUGenerator(seed)), device_(device) {}

  std::vector<NamedTensor> named_parameters() const override {
    std::vector<NamedTensor> parameters;
    for (const Layer& layer : layers_) {
      parameters.push_back({layer.name + ".weight", layer.weight});
      parameters.push_back({layer.name + ".bias", layer.bias});
    }
    return parameters;
  }
  std::vector<NamedTensor> named_buffers() const override { return {}; }
  void train(bool) override {}

 protected:
  // `shape` is the weight's: its first size is the outputs'.
  void add(const std::string& name, at::IntArrayRef shape) {
    const double bound = 1 / std::sqrt(c10::multiply_integers(shape.slice(1)));
    const auto random = [&](at::IntArrayRef sizes) {
      const at::Tensor values = at::empty(sizes).uniform_(-bound, bound, generator_);
      return values.to(device_).set_requires_grad(true);
    };
    layers_.push_back({.name = name, .weight = random(shape), .bias = random(shape[0])});
  }

  at::Tensor linear(std::size_t layer, const at::Tensor& x) const {
    return at::linear(x, layers_[layer].weight, layers_[layer].bias);
  }
  at::Tensor convolution(std::size_t layer, const at::Tensor& x) const {
    return at::conv2d(x, layers_[layer].weight, layers_[layer].bias);
  }

  std::vector<Layer> layers_;

 private:
  at::Generator generator_;
  const at::Device device_;
};

class Mlp : public LayeredModel {
 public:
  Mlp(const std::vector<std::int64_t>& widths, std::uint64_t seed, const at::Device& device)
      : LayeredModel(seed, device) {
    for (std::size_t i = 1; i < widths.size(); ++i) {
      add("layer" + std::to_string(i), {widths[i], widths[i - 1]});
    }
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = linear(0, input);
    for (std::size_t layer = 1; layer < layers_.size(); ++layer) {
      x = linear(layer, x.relu_());
    }
    return x;
  }
};

class CifarModel : public LayeredModel {
 public:
  CifarModel(std::shared_ptr<BatchNorm> batch_norm, std::uint64_t seed, const at::Device& device)
      : LayeredModel(seed, device), batch_norm_(std::move(batch_norm)) {
    add("conv1", {kChannels, 3, 3, 3});
    add("conv2", {kChannels, kChannels, 3, 3});
    add("fc1", {kCifarHidden, kFlat});
    add("fc2", {kCifarClasses, kCifarHidden});
    batch_norm_->to(device);
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = convolution(1, convolution(0, images).relu_()).relu_();
    x = at::dropout(at::max_pool2d(x, /*kernel_size=*/2), kDropoutOfConvolutions, training_);
    x = batch_norm_->forward(linear(2, x.flatten(1))).relu_();
    return linear(3, at::dropout(x, kDropoutOfHidden, training_));
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
  std::shared_ptr<BatchNorm> batch_norm_;
  bool training_ = true;
};

}  // namespace

std::unique_ptr<Model> make_mlp(const std::vector<std::int64_t>& widths, std::uint64_t seed,
                                at::Device device) {
  return std::make_unique<Mlp>(widths, seed, device);
}

std::unique_ptr<Model> make_cifar_model(std::shared_ptr<BatchNorm> batch_norm, std::uint64_t seed,
                                        const at::Device& device) {
  return std::make_unique<CifarModel>(std::move(batch_norm), seed, device);
}

}  // namespace ddp
