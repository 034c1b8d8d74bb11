#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp/cluster/hardware.h"
#include "ddp/cluster/timed_model.h"
#include "ddp/models/model.h"
#include "models/resnet.h"
#include "models/transformer.h"

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

/// How close a program comes to what its GPU could do.
struct Pace {
  /// Parts of the roofline's speed that the operators of forward and of backward reach, > 0.
  double forward_efficiency = 1;
  double backward_efficiency = 1;
  /// The part of the memory's speed that operators reach in both; 0: as for computing.
  double memory_efficiency = 0;
  /// Of each kernel, beyond its work: until it runs on all multiprocessors, and has left them.
  double kernel_ns = 0;
  /// The host's time for a layer, where that is slower than the GPU.
  cluster::HostTimes host = {};
};

/// A profile's parameters as tensors without values, for synchronizers, and its layers' times, for a
/// simulated cluster.
class ProfiledModel : public Model {
 public:
  explicit ProfiledModel(ModelProfile profile);

  const ModelProfile& profile() const { return profile_; }

  /// The layers in the order of forward. They share the parameters. Throws c10::ValueError for an
  /// efficiency that is not positive.
  std::vector<cluster::TimedLayer> timed_layers(const cluster::Device& device,
                                                const Pace& pace) const;

  /// Throws c10::Error: there is nothing to compute with.
  at::Tensor forward(const at::Tensor& input) override;
  /// In the real model's order, on the meta device.
  std::vector<NamedTensor> named_parameters() const override { return parameters_; }
  std::vector<NamedTensor> named_buffers() const override { return {}; }
  void train(bool) override {}

 private:
  const ModelProfile profile_;
  std::vector<NamedTensor> parameters_;
};

/// Images of side x side pixels.
struct ImageBatch {
  std::int64_t batch = 32;
  std::int64_t side = 224;
};

/// The profile of make_resnet(name) in training. The images need no gradient, so the first
/// convolution's backward has none. Throws c10::ValueError if the batch is not positive, or a side
/// is below 32.
ModelProfile resnet_profile(const std::string& name, const ImageBatch& images);

/// Sequences of `length` tokens.
struct SequenceBatch {
  std::int64_t batch = 2;
  std::int64_t length = 128;
};

/// The profile of make_transformer(shape) in training, with attention computed as written: scores
/// of all pairs of tokens are kept, also of those that causality masks. Throws c10::ValueError if a
/// number is not positive.
ModelProfile transformer_profile(const std::string& name, const TransformerShape& shape,
                                 const SequenceBatch& sequences);

}  // namespace ddp
