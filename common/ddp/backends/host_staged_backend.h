#pragma once

#include "ddp/backends/backend_decorator.h"

namespace ddp {

/// Which tensors a HostStagedBackend copies.
enum class Staging {
  kDeviceTensors,  ///< those of a GPU; tensors in host memory go through untouched
  kAllTensors,     ///< all of them, so that the copying can be tested without a GPU
};

/// Lets a backend that moves host memory, such as Gloo, take a GPU's tensors: they are copied to
/// pinned host memory, the inner backend works on the copies, and the result is copied back.
///
/// Streams are respected as NCCL does. A launch reads its tensors after all work that the caller's
/// current stream has in its queue, but by waiting for that stream, so a launch here does cost the
/// caller time. wait(), or the future, makes the caller's current stream wait for the result and
/// does not wait for the stream.
class HostStagedBackend : public BackendDecorator {
 public:
  explicit HostStagedBackend(BackendPtr inner, Staging staging = Staging::kDeviceTensors);

  WorkPtr run(Operation operation) override;

 private:
  bool must_stage(const Operation& operation) const;

  const Staging staging_;
};

}  // namespace ddp
