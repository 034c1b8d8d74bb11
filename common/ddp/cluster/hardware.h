#pragma once

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace ddp::cluster {

/// A GPU, by what decides how long its work takes.
struct Device {
  std::string name;
  double flops_per_second = 0;  // at its peak
  double bytes_per_second = 0;  // of its memory
  /// What a launch costs the host, of an operator as of a collective.
  std::int64_t launch_ns = 0;
  /// The part of the peak that operators reach, > 0 and at most 1.
  double efficiency = 1;
  /// Streaming multiprocessors, each of which computes one tile of a matrix product at a time; 0: as
  /// many as there are tiles.
  std::int64_t multiprocessors = 0;
  /// Whether they compute matrix products, so much faster that small tiles wait for their operands.
  bool tensor_cores = false;
  /// Where the numbers come from.
  std::string source = {};
};

/// How long an operator keeps the device busy, in nanoseconds: its arithmetic or its bytes, read and
/// written, whichever takes longer. Source: Williams, Waterman, Patterson, "Roofline: An Insightful
/// Visual Performance Model for Multicore Architectures", 2009.
std::int64_t operator_ns(const Device& device, double flops, double bytes);

/// Throws c10::ValueError, which names the device and the field, for rates that are not positive, an
/// efficiency outside (0, 1], or a negative launch.
void check(const Device& device);

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

/// A message of n bytes takes alpha + n * beta on a link, which works in both directions at once.
struct Link {
  std::int64_t alpha_ns = 0;
  double beta_ns_per_byte = 0;
};

enum class AllReduce {
  kRing,
  kNccl,  // as NCCL chooses, for each size anew: see nccl_choice()
};

/// How GPUs are connected. Ranks fill one node after the other.
struct Topology {
  std::int64_t gpus_per_node = 1;
  Link inside = {};   // from one GPU of a node to another
  Link between = {};  // from one node to another: all its adapters together
  AllReduce algorithm = AllReduce::kRing;
  NcclMachine nccl = {};
  /// What every all-reduce takes besides: the host's call, and what tables of NCCL leave out.
  std::int64_t overhead_ns = 0;
};

/// How long an all-reduce of S = `bytes` lasts once all p ranks have launched it, in nanoseconds,
/// rounded to the nearest: by NCCL's model, or on a ring, which with n nodes, whose slowest link in
/// use has beta, takes
///
///     2(p-n) alpha_inside + 2(n-1) alpha_between + 2 (p-1)/p S beta
///
/// The ring of one node is that of ddp::cost_ns(). Source: Patarasuk and Yuan, "Bandwidth Optimal
/// All-reduce Algorithms for Clusters of Workstations", 2009.
std::int64_t all_reduce_ns(const Topology& topology, std::int64_t bytes, std::int64_t world_size);

/// The same for any operation of ddp::cost_ns(). Reduce-scatter and all-gather are half an all-reduce on
/// the ring, or NCCL's; ddp::cost_ns() prices all others, with the slowest link in use. `bytes` is
/// Operation::payload_bytes().
std::int64_t cost_ns(const Topology& topology, c10d::OpType operation, std::int64_t bytes,
                     std::int64_t world_size);

/// The fastest all-reduce by NCCL's own model (src/graph/tuning.cc of NCCL 2.30: ncclTopoTuneModel,
/// ncclTopoGetAlgoTime, and their tables of latencies and of bandwidths by protocol), whose ring has
/// the links' bandwidth. NVLS is chosen by that model, but takes what its bytes take. Two trees
/// between nodes, a chain inside. Left out: CollNet, and NVLS between nodes, which need switches that
/// add.
NcclChoice nccl_choice(const Topology& topology, std::int64_t bytes, std::int64_t world_size);

/// Throws c10::ValueError, which says what is wrong, for a node without GPUs or a negative cost.
void check(const Topology& topology);

}  // namespace ddp::cluster
