#include "models/resnet.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cmath>

#include "models/named.h"

namespace ddp {
namespace {

namespace nn = torch::nn;

struct Architecture {
  const char* name;
  ResNetShape shape;
};

constexpr Architecture kArchitectures[] = {
    {"resnet50", {{3, 4, 6, 3}, 1, 64}},
    {"resnet101", {{3, 4, 23, 3}, 1, 64}},
    {"resnext50_32x4d", {{3, 4, 6, 3}, 32, 4}},
    {"resnext101_32x8d", {{3, 4, 23, 3}, 32, 8}},
};

nn::Conv2d make_convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel,
                            std::int64_t stride = 1, std::int64_t groups = 1) {
  return nn::Conv2d(nn::Conv2dOptions(inputs, outputs, kernel)
                        .stride(stride)
                        .padding(kernel / 2)
                        .groups(groups)
                        .bias(false));
}

// 1x1 to fewer channels, 3x3, 1x1 to more, added to the input.
class BottleneckImpl : public nn::Module {
 public:
  BottleneckImpl(std::int64_t inputs, std::int64_t planes, std::int64_t stride,
                 const ResNetShape& shape) {
    const std::int64_t groups = shape.groups;
    const std::int64_t width = planes * shape.width_per_group / 64 * groups;
    const std::int64_t outputs = planes * kResNetExpansion;
    conv1_ = register_module("conv1", make_convolution(inputs, width, 1));
    bn1_ = register_module("bn1", nn::BatchNorm2d(width));
    conv2_ = register_module("conv2", make_convolution(width, width, 3, stride, groups));
    bn2_ = register_module("bn2", nn::BatchNorm2d(width));
    conv3_ = register_module("conv3", make_convolution(width, outputs, 1));
    bn3_ = register_module("bn3", nn::BatchNorm2d(outputs));
    if (stride != 1 || inputs != outputs) {
      downsample_ = register_module(
          "downsample",
          nn::Sequential(make_convolution(inputs, outputs, 1, stride), nn::BatchNorm2d(outputs)));
    }
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = bn1_(conv1_(input)).relu_();
    x = bn2_(conv2_(x)).relu_();
    x = bn3_(conv3_(x));
    return x.add_(downsample_ ? downsample_->forward(input) : input).relu_();
  }

 private:
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
  nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(Bottleneck);

class NetworkImpl : public nn::Module {
 public:
  explicit NetworkImpl(const ResNetShape& shape) {
    conv1_ = register_module("conv1", make_convolution(3, 64, 7, /*stride=*/2));
    bn1_ = register_module("bn1", nn::BatchNorm2d(64));
    std::int64_t inputs = 64;
    for (int stage = 0; stage < 4; ++stage) {
      const std::int64_t planes = 64 << stage;
      nn::Sequential blocks;
      for (int block = 0; block < shape.blocks[stage]; ++block) {
        const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        blocks->push_back(Bottleneck(inputs, planes, stride, shape));
        inputs = planes * kResNetExpansion;
      }
      stages_[stage] = register_module("layer" + std::to_string(stage + 1), blocks);
    }
    fc_ = register_module("fc", nn::Linear(inputs, kResNetClasses));
  }

  at::Tensor forward(const at::Tensor& images) {
    at::Tensor x = bn1_(conv1_(images)).relu_();
    x = at::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    for (nn::Sequential& stage : stages_) {
      x = stage->forward(x);
    }
    return fc_(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

  // As in torchvision: He et al.'s normal distribution for the convolutions, the default one for
  // `fc`.
  void initialize(at::Generator generator) {
    at::NoGradGuard no_grad;
    for (const auto& module : modules()) {
      if (auto* convolution = module->as<nn::Conv2d>()) {
        at::Tensor& weight = convolution->weight;
        const double fan_out = static_cast<double>(weight.size(0)) * weight.size(2) *
                               weight.size(3) / convolution->options.groups();
        weight.normal_(0, std::sqrt(2 / fan_out), generator);
      }
    }
    const double bound = 1 / std::sqrt(fc_->weight.size(1));
    fc_->weight.uniform_(-bound, bound, generator);
    fc_->bias.uniform_(-bound, bound, generator);
  }

 private:
  nn::Conv2d conv1_{nullptr};
  nn::BatchNorm2d bn1_{nullptr};
  std::array<nn::Sequential, 4> stages_{nullptr, nullptr, nullptr, nullptr};
  nn::Linear fc_{nullptr};
};
TORCH_MODULE(Network);

std::vector<NamedTensor> to_list(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  std::vector<NamedTensor> list;
  for (const auto& item : tensors) {
    list.push_back({item.key(), item.value()});
  }
  return list;
}

class ResNet : public Model {
 public:
  ResNet(const ResNetShape& shape, std::uint64_t seed, at::Device device) : network_(shape) {
    network_->initialize(at::detail::createCPUGenerator(seed));
    network_->to(device);
  }
  at::Tensor forward(const at::Tensor& images) override { return network_->forward(images); }
  std::vector<NamedTensor> named_parameters() const override {
    return to_list(network_->named_parameters());
  }
  std::vector<NamedTensor> named_buffers() const override {
    return to_list(network_->named_buffers());
  }
  void train(bool on) override { network_->train(on); }

 private:
  Network network_;
};

}  // namespace

std::unique_ptr<Model> make_resnet(const std::string& name, std::uint64_t seed, at::Device device) {
  return std::make_unique<ResNet>(resnet_shape(name), seed, device);
}

const std::vector<std::string>& resnet_names() {
  static const std::vector<std::string> names = names_of(kArchitectures);
  return names;
}

ResNetShape resnet_shape(const std::string& name) {
  return named(name, kArchitectures, "model").shape;
}

}  // namespace ddp
