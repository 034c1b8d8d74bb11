#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ddp/model.h"

namespace ddp {

/// Makes a multilayer perceptron, float32 on `device`, that maps [n, widths.front()] to scores [n,
/// widths.back()]: linear layers with biases, named "layer1.weight" and so on, with a ReLU between
/// any two. Weights and biases are uniform in +-1/sqrt(inputs of the layer) and depend on `seed`
/// alone. Throws c10::ValueError for fewer than two widths, or a width that is not positive.
std::unique_ptr<Model> make_mlp(const std::vector<std::int64_t>& widths, std::uint64_t seed = 0,
                                at::Device device = at::kCPU);

}  // namespace ddp
