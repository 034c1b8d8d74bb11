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

/// The published network, which maps images [n, 3, 32, 32] to scores [n, 100]:
/// - twice: 3x3 convolution to 32 channels without padding, batch normalization (without weight and
///   bias), ReLU,
/// - max-pooling by 2, dropout of 0.25,
/// - linear layer 6272 to 128, ReLU, dropout of 0.5, linear layer 128 to 100.
///
/// 825,992 parameters, float32 on the device_context's device, initialized as in torch.nn: uniform
/// in +-1/sqrt(inputs per output). Equal seeds give equal weights whatever the batch normalization.
/// Dropout draws from libtorch's default generator of the device.
std::unique_ptr<Model> make_cifar_model(const CifarModelOptions& options,
                                        const DeviceContext& device_context);

}  // namespace ddp
