#pragma once

#include <c10/core/Device.h>

#include <string>

#include "ddp/ranks/launch.h"

namespace ddp {

/// How a machine's processors are connected, and what said so.
struct Topology {
  std::string command;  // "nvidia-smi topo -m", "lscpu"
  std::string text;     // one or more whole lines
};

/// By `nvidia-smi topo -m` where it works, else those lines of lscpu that tell of cores, caches and
/// NUMA nodes.
Topology find_topology();

/// On rank 0 the topology of its machine; if another machine's differs, it says so on stderr. Other
/// ranks get an empty one. Collective.
Topology gather_topology(const RankContext& context);

/// The version of CUDA that runs on `device`, such as "13.0"; empty for the CPU.
std::string cuda_version(const at::Device& device);

}  // namespace ddp
