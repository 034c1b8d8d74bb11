#pragma once

#include <cstdint>
#include <vector>

#include "ddp/cluster/hardware.h"
#include "ddp/cluster/timed_model.h"
#include "ddp/model.h"
#include "models/profiles/model_profile.h"

namespace ddp {

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

}  // namespace ddp
