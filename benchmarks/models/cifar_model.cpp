#include "models/cifar_model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <cmath>

#include "ddp/batch_norm.h"

namespace ddp {
namespace {

constexpr std::int64_t kCifarClasses = 100;
constexpr std::int64_t kChannels = 32;
constexpr std::int64_t kPooledSide = (32 - 4) / 2;  // each convolution removes 2
constexpr std::int64_t kFlat = kChannels * kPooledSide * kPooledSide;
constexpr double kDropoutOfConvolutions = 0.25;
constexpr double kDropoutOfHidden = 0.5;

struct WeightAndBias {
  std::string name;
  at::Tensor weight, bias;
};

class CifarModel : public Model {
 public:
  CifarModel(std::shared_ptr<BatchNorm> batch_norm, std::uint64_t seed, const at::Device& device)
      : batch_norm_(std::move(batch_norm)) {
    at::Generator generator = at::detail::createCPUGenerator(seed);
    const auto layer = [&](const char* name, at::IntArrayRef shape) -> WeightAndBias {
      const double bound = 1 / std::sqrt(c10::multiply_integers(shape.slice(1)));
      const auto random = [&](at::IntArrayRef sizes) {
        const at::Tensor values = at::empty(sizes).uniform_(-bound, bound, generator);
        return values.to(device).set_requires_grad(true);
      };
      return {.name = name, .weight = random(shape), .bias = random(shape[0])};
    };
    layers_ = {layer("conv1", {kChannels, 3, 3, 3}), layer("conv2", {kChannels, kChannels, 3, 3}),
               layer("fc1", {kCifarHidden, kFlat}), layer("fc2", {kCifarClasses, kCifarHidden})};
    batch_norm_->to(device);
  }

  at::Tensor forward(const at::Tensor& images) override {
    const auto& [conv1, conv2, fc1, fc2] = layers_;
    at::Tensor x = at::conv2d(images, conv1.weight, conv1.bias).relu_();
    x = at::conv2d(x, conv2.weight, conv2.bias).relu_();
    x = at::dropout(at::max_pool2d(x, /*kernel_size=*/2), kDropoutOfConvolutions, training_);
    x = batch_norm_->forward(at::linear(x.flatten(1), fc1.weight, fc1.bias)).relu_();
    return at::linear(at::dropout(x, kDropoutOfHidden, training_), fc2.weight, fc2.bias);
  }

  std::vector<NamedTensor> named_parameters() const override {
    std::vector<NamedTensor> parameters;
    for (const WeightAndBias& layer : layers_) {
      parameters.push_back({layer.name + ".weight", layer.weight});
      parameters.push_back({layer.name + ".bias", layer.bias});
    }
    return parameters;
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
  std::array<WeightAndBias, 4> layers_;
  std::shared_ptr<BatchNorm> batch_norm_;
  bool training_ = true;
};

}  // namespace

std::unique_ptr<Model> make_cifar_model(std::shared_ptr<BatchNorm> batch_norm, std::uint64_t seed,
                                        const at::Device& device) {
  return std::make_unique<CifarModel>(std::move(batch_norm), seed, device);
}

}  // namespace ddp
