#pragma once

#include <c10/core/Device.h>

#include <string>

#include "ddp/ranks/launch.h"

namespace ddp {

/// How a machine's processors are connected, and the command that reported it.
struct Topology {
  std::string command;  // "nvidia-smi topo -m", "lscpu"
  std::string text;     // one or more whole lines
};

/// The output of `nvidia-smi topo -m` if that works, else the lines of lscpu about cores, caches
/// and NUMA nodes.
Topology find_topology();

/// On rank 0 the topology of its machine; if another machine's differs, rank 0 prints that to
/// stderr. Other ranks get an empty one. Collective.
Topology gather_topology(const RankContext& context);

/// The version of CUDA in use on `device`, such as "13.0"; empty for the CPU.
std::string cuda_version(const at::Device& device);

}  // namespace ddp
