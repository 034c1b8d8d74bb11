#pragma once

#include <string>
#include <vector>

#include "ddp/cluster/device.h"
#include "ddp/cluster/topology.h"

namespace ddp {

/// "V100", "A100", "H100", "A4000".
const std::vector<std::string>& known_gpus();

/// A GPU as its data sheet describes it: the fastest arithmetic that libtorch uses for float32, and
/// memory. A launch is assumed to take 5 us. Throws c10::ValueError, listing the known names, for
/// any other.
cluster::Device known_gpu(const std::string& name);

/// "pcie3", "pcie4", "nvlink2", "nvlink3", "nvlink4", "ethernet10", "infiniband4x100".
const std::vector<std::string>& known_links();

/// What connects GPUs, or machines, at its peak in one direction: bytes as its specification says,
/// the latency of a message as NCCL's model of its ring has it (src/graph/tuning.cc, protocol
/// Simple). Throws c10::ValueError, listing the known names, for any other.
cluster::Link known_link(const std::string& name);

}  // namespace ddp
