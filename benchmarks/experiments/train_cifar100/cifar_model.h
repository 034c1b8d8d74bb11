#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ddp/model.h"
#include "harness/benchmark.h"

namespace ddp {

struct CifarModelOptions {
  std::string batch_norm;  // one of support/batch_norms.h
  std::uint64_t seed = 0;  // of the weights
};

/// The published network, which maps images [n, 3, 32, 32] to scores [n, 100]: twice a convolution
/// of 3x3 to 32 channels, without padding, with batch normalization (without weight and bias) and
/// ReLU; max-pooling by 2 and dropout of 0.25; 6272 to 128, ReLU, dropout of 0.5, 128 to 100.
///
/// 825,992 parameters, float32 on the device_context's device, which begin as torch.nn's do: uniform in
/// +-1/sqrt(inputs of an output). Equal seeds give equal weights whatever the batch normalization.
/// The dropout draws from libtorch's default generator of the device.
std::unique_ptr<Model> make_cifar_model(const CifarModelOptions& options,
                                        const DeviceContext& device_context);

}  // namespace ddp
