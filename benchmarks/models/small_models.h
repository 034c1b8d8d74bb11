#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/models/model.h"

namespace ddp {

class BatchNorm;  // ddp/batch_norm.h

/// A part of a model: what it makes of x and of its parameters.
struct ModelUnit {
  std::vector<at::Tensor> parameters;
  std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& parameters)>
      function;
};
/// What the units make of x, one after the other, each of its own parameters.
at::Tensor through(const std::vector<ModelUnit>& units, at::Tensor x);

/// Layers one after the other, each with a weight and a bias, float32 on `device`. Both are uniform
/// in +-1/sqrt(inputs per output), and drawn in the order of add() from `seed`.
class LayeredModel : public Model {
 public:
  LayeredModel(std::uint64_t seed, const at::Device& device);

  using Function = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight,
                                            const at::Tensor& bias)>;
  /// Adds "<name>.weight" and "<name>.bias"; the first size of `shape`, the weight's, is the
  /// outputs'.
  void add(const std::string& name, at::IntArrayRef shape, Function function);

  at::Tensor forward(const at::Tensor& x) override { return through(units(), x); }
  std::vector<NamedTensor> named_parameters() const override;
  std::vector<NamedTensor> named_buffers() const override { return {}; }
  void train(bool) override {}

  /// The layers, which use the model.
  std::vector<ModelUnit> units() const;

 protected:
  struct Layer {
    std::string name;
    at::Tensor weight, bias;
    Function function;
  };
  const std::vector<Layer>& layers() const { return layers_; }

  /// What a layer makes of x.
  virtual at::Tensor apply(std::size_t layer, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& bias) const {
    return layers_[layer].function(x, weight, bias);
  }

 private:
  at::Generator generator_;
  const at::Device device_;
  std::vector<Layer> layers_;
};

/// Makes a multilayer perceptron, float32 on `device`, that maps [n, widths.front()] to scores [n,
/// widths.back()]: linear layers with biases, named "layer1.weight" and so on, with a ReLU between
/// any two.
std::unique_ptr<LayeredModel> make_mlp(const std::vector<std::int64_t>& widths,
                                       std::uint64_t seed = 0, at::Device device = at::kCPU);

/// The features that the network's only batch normalization takes.
constexpr std::int64_t kCifarHidden = 128;

/// The network of the published training on CIFAR-100, which maps images [n, 3, 32, 32] to scores
/// [n, 100]:
/// - 3x3 convolution to 32 channels, ReLU, and the same again, both without padding,
/// - max-pooling by 2, dropout of 0.25,
/// - linear layer 6272 to 128, batch normalization without weight and bias, ReLU, dropout of 0.5,
/// - linear layer 128 to 100.
///
/// 825,988 parameters: 896 + 9,248 of the convolutions, 802,944 + 12,900 of the linear layers. All
/// are float32 on `device`, initialized as in torch.nn: uniform in +-1/sqrt(inputs per output), from
/// `seed`. Dropout draws from libtorch's default generator of the device.
///
/// `batch_norm`, of kCifarHidden features and not affine, is moved to the device. In training it
/// throws c10::Error for fewer than two images, over all ranks if it is synchronized.
std::unique_ptr<Model> make_cifar_model(std::shared_ptr<BatchNorm> batch_norm, std::uint64_t seed,
                                        const at::Device& device);

}  // namespace ddp
