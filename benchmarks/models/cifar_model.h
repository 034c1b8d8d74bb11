#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ddp/model.h"
#include "harness/benchmark.h"

namespace ddp {

struct CifarModelOptions {
  std::string batch_norm;  // a name of peers/batch_norms.h
  std::uint64_t seed = 0;  // of the weights
};

/// The network of the published training on CIFAR-100, which maps images [n, 3, 32, 32] to scores
/// [n, 100]:
/// - 3x3 convolution to 32 channels, ReLU, and the same again, both without padding,
/// - max-pooling by 2, dropout of 0.25,
/// - linear layer 6272 to 128, batch normalization without weight and bias, ReLU, dropout of 0.5,
/// - linear layer 128 to 100.
///
/// 825,988 parameters: 896 + 9,248 of the convolutions, 802,944 + 12,900 of the linear layers. All
/// are float32 on the device_context's device, initialized as in torch.nn: uniform in
/// +-1/sqrt(inputs per output). Equal seeds give equal weights whatever the batch normalization.
/// Dropout draws from libtorch's default generator of the device.
///
/// In training the batch normalization, the only one, needs two images over all ranks, or throws
/// c10::Error.
std::unique_ptr<Model> make_cifar_model(const CifarModelOptions& options,
                                        const DeviceContext& device_context);

}  // namespace ddp
