#pragma once

#include <limits>

#include "ddp/cluster/cluster_options.h"

namespace ddp::testing {

/// A cluster of nodes with one GPU each: launches cost `launch_ns`, operators that move data nothing
/// else, and messages what `between` says.
inline cluster::ClusterOptions flat_cluster(std::int64_t ranks, cluster::Link between,
                                            std::int64_t launch_ns = 0) {
  cluster::ClusterOptions options;
  options.world_size = ranks;
  options.device = {.name = "a fast one",
                    .flops_per_second = 1,
                    .bytes_per_second = std::numeric_limits<double>::infinity(),
                    .launch_ns = launch_ns};
  options.topology.between = between;
  options.topology.algorithm = cluster::AllReduce::kRing;
  return options;
}

}  // namespace ddp::testing
