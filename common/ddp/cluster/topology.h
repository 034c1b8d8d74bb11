#pragma once

#include <cstdint>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "ddp/cluster/nccl.h"

namespace ddp::cluster {

/// A message of n bytes takes alpha + n * beta on a link, which works in both directions at once.
struct Link {
  std::int64_t alpha_ns = 0;
  double beta_ns_per_byte = 0;
};

enum class AllReduce {
  kRing,
  kNccl,  // as NCCL chooses, for each size anew: see nccl.h
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

/// What NCCL would do there.
NcclChoice nccl_choice(const Topology& topology, std::int64_t bytes, std::int64_t world_size);

/// Throws c10::ValueError, which says what is wrong, for a node without GPUs or a negative cost.
void check(const Topology& topology);

}  // namespace ddp::cluster
