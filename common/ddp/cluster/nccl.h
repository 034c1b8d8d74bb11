#pragma once

#include <cstdint>
#include <string>

namespace ddp::cluster {

/// What NCCL's choice depends on besides sizes and speeds.
struct NcclMachine {
  enum Generation : std::uint8_t { kVolta, kAmpere, kHopper };
  Generation generation = kVolta;
  bool nvlink = false;    // inside a node; else PCI Express
  bool nvswitch = false;  // which adds up data itself, from Hopper on (NVLS)
};

/// An all-reduce as NCCL chooses it: "tree", "ring" or "NVLS", by the protocol "LL", "LL128" or
/// "Simple", and how long it takes.
struct NcclChoice {
  std::string algorithm = {}, protocol = {};
  double ns = 0;
};

/// Who takes part.
struct NcclWorld {
  NcclMachine machine = {};
  std::int64_t ranks = 1, nodes = 1;
  double bytes_per_ns = 0;  // of the slowest link in use, in one direction
};

/// The fastest by NCCL's own model (src/graph/tuning.cc of NCCL 2.30: ncclTopoTuneModel,
/// ncclTopoGetAlgoTime, and their tables of latencies and of bandwidths by protocol), whose ring has
/// the links' bandwidth. NVLS is chosen by that model, but takes what its bytes take. Two trees
/// between nodes, a chain inside. Left out: CollNet, and NVLS between nodes, which need switches that
/// add.
NcclChoice nccl_all_reduce(const NcclWorld& world, double bytes);

/// How long a reduce-scatter or an all-gather of `bytes` in all takes by the same model: a ring, by the
/// fastest protocol. Left out: PAT, which NCCL takes where each node has one rank alone.
double nccl_half_ns(const NcclWorld& world, double bytes);

}  // namespace ddp::cluster
