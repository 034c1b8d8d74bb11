#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/models/model.h"

namespace ddp {

/// Residual networks for images: He et al., "Deep Residual Learning for Image Recognition" (2015),
/// and, as resnext, Xie et al., "Aggregated Residual Transformations for Deep Neural Networks"
/// (2016).
///
/// In what the networks differ:
struct ResNetShape {
  std::array<int, 4> blocks;     // in each of the four stages
  std::int64_t groups;           // of a block's 3x3 convolution
  std::int64_t width_per_group;  // of the first stage; a plain ResNet has one group of 64
};

/// In what they agree: the scores, and the output channels of a block per channel of its stage.
constexpr std::int64_t kResNetClasses = 1000;
constexpr std::int64_t kResNetExpansion = 4;

/// The names that command lines use, such as "resnext50_32x4d".
const std::vector<std::string>& resnet_names();

/// These throw c10::ValueError, listing the known names, for any other.
ResNetShape resnet_shape(const std::string& name);

/// Makes a network with 1000 classes in training mode, float32 on `device`, that maps images [n, 3,
/// height, width], with sides of at least 32, to scores [n, 1000]. Layers, parameter names and
/// initial distributions are torchvision's; the values depend on `seed` alone. ResNet-50 has
/// 25,557,032 parameters in 161 tensors.
std::unique_ptr<Model> make_resnet(const std::string& name, std::uint64_t seed = 0,
                                   at::Device device = at::kCPU);

}  // namespace ddp
