#pragma once

#include "ddp/backends/operation_backend.h"

namespace ddp {

/// Which tensors a HostStagedBackend copies.
enum class Staging {
  kDeviceTensors,  ///< those on a GPU; tensors in host memory are passed on as they are
  kAllTensors,     ///< all, so that the copying can be tested without a GPU
};

/// Lets a backend for host memory, such as Gloo, take GPU tensors: they are copied to pinned host
/// memory, the inner backend works on the copies, and the result is copied back.
///
/// Streams are respected as in NCCL. A launch reads its tensors after all work that is queued on
/// the caller's current stream; unlike NCCL, it blocks the caller until that stream is done.
/// wait(), or the future, makes the caller's current stream wait for the result, but does not block
/// the caller on that stream.
class HostStagedBackend : public BackendDecorator {
 public:
  explicit HostStagedBackend(BackendPtr inner, Staging staging = Staging::kDeviceTensors);

  WorkPtr run(Operation operation) override;

 private:
  bool must_stage(const Operation& operation) const;

  const Staging staging_;
};

}  // namespace ddp
