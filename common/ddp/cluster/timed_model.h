#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ddp/cluster/cluster.h"
#include "ddp/cluster/meta_memory.h"
#include "ddp/gradient_synchronizer.h"

namespace ddp::cluster {

/// A layer that computes nothing, and takes the time of one that does.
struct TimedLayer {
  /// On the meta device, requiring gradients; may be none.
  std::vector<at::Tensor> parameters = {};
  /// On the compute stream, with nothing else running.
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
  std::string name = "";
  std::int64_t forward_kernels = 1;
  std::int64_t backward_kernels = 1;
  /// What autograd keeps from its forward for its backward.
  std::int64_t activation_bytes = 0;
};

/// What a layer of forward and of backward takes the host, if that is more than a launch. The host
/// runs ahead of the compute stream, so whichever is slower decides.
struct HostTimes {
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
};

/// A trainable parameter of that shape, without values.
at::Tensor make_parameter(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

/// What happens around the parts of a step; each may be empty.
struct StepParts {
  std::function<void()> before_forward = {};
  /// In place of TimedModel::forward() through all layers.
  std::function<at::Tensor(const at::Tensor& x)> forward = {};
  std::function<void()> before_backward = {};
  /// When it returns, gradients are averages.
  std::function<void()> finish = {};
};

/// The times of a step, in nanoseconds. A part ends when its host is done, and everything that it
/// launched on the compute stream.
struct StepTimes {
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
  std::int64_t finish_ns = 0;
  /// When the host alone was done with backward.
  std::int64_t host_backward_end_ns = 0;
  /// To the end of the last collective, too.
  std::int64_t total_ns = 0;
  /// What the collectives last with no computing beside them.
  std::int64_t communication_ns = 0;
  std::int64_t collectives = 0;
  /// How long waits for them held up the rest.
  std::int64_t waiting_ns = 0;
  /// The most that was held within the step; nothing where there is no MetaMemory.
  MemoryUse most = {};
};

/// A model of such layers, which is trained on a cluster.
///
/// Backward takes the layers from the last to the first. Once a layer's time is over, its parameters
/// have their gradients, the last one first.
class TimedModel {
 public:
  /// Throws c10::ValueError, which names the layer, for a parameter that is not on the meta device or
  /// requires no gradient, or for a negative time. `parameters` are the layers' in another order, as a
  /// model may list them.
  TimedModel(Cluster& cluster, std::vector<TimedLayer> layers,
             std::vector<at::Tensor> parameters = {}, const HostTimes& host = {});

  /// As they were given; if they were not, in the order of the layers.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const std::vector<TimedLayer>& layers() const { return layers_; }

  /// What some layers make of x, from number `first` to the one before `last`, with these tensors in
  /// the place of their parameters.
  at::Tensor forward(std::size_t first, std::size_t last, at::Tensor x,
                     const std::vector<at::Tensor>& parameters) const;

  /// One step that begins with no gradients, with all clocks at zero.
  StepTimes step(const StepParts& parts = {});
  StepTimes step(GradientSynchronizer& synchronizer);

 private:
  Cluster& cluster_;
  const std::vector<TimedLayer> layers_;
  at::Tensor source_;                              // what the first layer's input depends on
  std::vector<at::Tensor> parameters_, in_order_;  // as listed, and as the layers have them
  const HostTimes host_;
  bool in_backward_ = false;
};

}  // namespace ddp::cluster
