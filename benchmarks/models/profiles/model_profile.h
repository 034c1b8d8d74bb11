#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

/// `count` matrix products of [rows, inner] with [inner, columns], one operator.
struct Product {
  std::int64_t rows = 0, inner = 0, columns = 0, count = 1;

  std::int64_t flops() const { return 2 * count * rows * inner * columns; }
  std::int64_t bytes() const;
};

/// What a part of a training step does on a device, whatever the device.
struct Work {
  /// Of matrix products and convolutions, a multiplication and an addition being two operations.
  std::int64_t flops = 0;
  /// What each operator reads from memory and writes to it, once, in float32: no operators are
  /// fused.
  std::int64_t bytes = 0;
  /// Kernels that a GPU runs for it.
  std::int64_t kernels = 0;
  /// Of all three, what matrix products do.
  std::vector<Product> products = {};

  Work& operator+=(const Work& other);
};

struct ParameterShape {
  std::string name;
  std::vector<std::int64_t> sizes;

  std::int64_t elements() const;
};

/// An operator with parameters and those without that follow it, or some of the latter alone.
struct ProfiledLayer {
  std::string name;                     // "layer1.0.conv1"
  std::vector<std::size_t> parameters;  // indices into ModelProfile::parameters
  Work forward, backward;
  std::int64_t kept = 0;  // elements that autograd keeps from forward for backward
};

/// A model without its values: how large its gradients are, in which order backward produces them,
/// and how much has to be computed before each.
struct ModelProfile {
  std::string name;
  /// Names, shapes and order are those of the model's named_parameters().
  std::vector<ParameterShape> parameters;
  /// In the order of forward; backward takes them in reverse. A parameter is in one layer.
  std::vector<ProfiledLayer> layers;

  std::int64_t elements() const;
  Work forward() const;
  Work backward() const;
};

/// An update of all parameters by an optimizer that keeps `states` values for each element (SGD
/// with momentum one, AdamW two), in one pass: reads parameter, gradient and states, writes
/// parameter and states.
Work optimizer_work(const ModelProfile& model, int states);

/// What layers are made of. n elements are read or written, once for each time they are named, by so
/// many kernels.
Work moving(std::int64_t n, std::int64_t kernels = 1);

/// A matrix product of [rows, inputs] with [inputs, outputs], or `count` of them.
Work product(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, std::int64_t count = 1);

}  // namespace ddp
