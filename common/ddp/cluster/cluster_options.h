#pragma once

#include <cstdint>

#include "ddp/cluster/device.h"
#include "ddp/cluster/topology.h"

namespace ddp::cluster {

struct ClusterOptions {
  std::int64_t world_size = 1;
  Device device;
  Topology topology;
  /// Whether a wait for communication holds up the host, as Gloo's does. NCCL's holds up only what
  /// is launched on the compute stream from then on.
  bool wait_blocks_host = false;
  /// By how much a collective slows computing that runs beside it, >= 1: at 1.2 that takes 20 %
  /// longer.
  double slowdown_beside_communication = 1;
  /// See Messages::Options.
  bool others_in_step = false;
};

}  // namespace ddp::cluster
