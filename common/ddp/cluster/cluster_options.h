#pragma once

#include <cstdint>
#include <limits>

#include "ddp/cluster/device.h"
#include "ddp/cluster/topology.h"

namespace ddp::cluster {

struct ClusterOptions {
  std::int64_t world_size = 1;
  Device device = {};
  Topology topology = {};
  /// Whether a wait for communication holds up the host, as Gloo's does. NCCL's holds up only what
  /// is launched on the compute stream from then on.
  bool wait_blocks_host = false;
  /// By how much a collective slows computing that runs beside it, >= 1: at 1.2 that takes 20 %
  /// longer.
  double slowdown_beside_communication = 1;
  /// How much longer each kernel takes then, whatever its size.
  std::int64_t kernel_ns_beside_communication = 0;
  /// The same of a collective beside computing: its kernel waits for multiprocessors, and its data for
  /// memory.
  double slowdown_beside_computing = 1;
  /// Kernels that the host may launch before the device gets to them; 0: any number.
  std::int64_t launch_queue = 0;
  /// See Messages::Options.
  bool others_in_step = false;
};

/// Machines with one GPU each, between which all-reduces go around a ring, and whose own work costs
/// nothing but launches: communication alone.
inline ClusterOptions bare_network(std::int64_t world_size, Link between,
                                   std::int64_t launch_ns = 0) {
  ClusterOptions options;
  options.world_size = world_size;
  options.device = {.name = "infinitely fast",
                    .flops_per_second = std::numeric_limits<double>::infinity(),
                    .bytes_per_second = std::numeric_limits<double>::infinity(),
                    .launch_ns = launch_ns};
  options.topology.between = between;
  options.topology.algorithm = AllReduce::kRing;
  return options;
}

}  // namespace ddp::cluster
