#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ddp/model.h"

namespace ddp {

class BatchNorm;  // ddp/batch_norm.h

/// Makes a multilayer perceptron, float32 on `device`, that maps [n, widths.front()] to scores [n,
/// widths.back()]: linear layers with biases, named "layer1.weight" and so on, with a ReLU between
/// any two. Weights and biases are uniform in +-1/sqrt(inputs of the layer) and depend on `seed`
/// alone.
std::unique_ptr<Model> make_mlp(const std::vector<std::int64_t>& widths, std::uint64_t seed = 0,
                                at::Device device = at::kCPU);

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
