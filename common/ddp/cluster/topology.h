#pragma once

#include <cstdint>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace ddp::cluster {

/// A message of n bytes takes alpha + n * beta on a link, which works in both directions at once.
struct Link {
  std::int64_t alpha_ns = 0;
  double beta_ns_per_byte = 0;
};

enum class AllReduce {
  kRing,
  kTree,
  kHierarchical,
  kBest,  // the fastest of the others, for each size anew
};

/// How GPUs are connected. Ranks fill one node after the other.
struct Topology {
  std::int64_t gpus_per_node = 1;
  Link inside = {};   // from one GPU of a node to another
  Link between = {};  // from one node to another: all its adapters together
  AllReduce algorithm = AllReduce::kBest;
};

/// How long an all-reduce of S = `bytes` lasts once all p ranks have launched it, in nanoseconds,
/// rounded to the nearest. With n nodes of g GPUs, whose slowest link in use has beta:
///
///     ring          2(p-n) alpha_inside + 2(n-1) alpha_between + 2 (p-1)/p S beta
///     tree          2(g-1) alpha_inside + 2 ceil(log2 n) alpha_between + 2 S beta
///     hierarchical  2(g-1) alpha_inside + 2 (g-1)/g S beta_inside
///                       + 2(n-1) alpha_between + 2 (n-1)/n S beta_between
///
/// The ring of one node is that of ddp::cost_ns(). Its latencies and those of the tree are NCCL's
/// (src/graph/tuning.cc); so is the tree, two binary trees between nodes, each for half of the data,
/// that are pipelined, and a chain inside. Hierarchical is a ring's reduce-scatter inside each node,
/// then rings between nodes, then a ring's all-gather inside. Sources: Patarasuk and Yuan, "Bandwidth
/// Optimal All-reduce Algorithms for Clusters of Workstations", 2009 (ring); Sanders, Speck, Traeff,
/// "Two-Tree Algorithms for Full Bandwidth Broadcast, Reduction and Scan", 2009 (tree).
///
/// Hierarchical needs as many ranks on each node: the best is chosen among the others where they are
/// not, and asking for it throws c10::ValueError.
std::int64_t all_reduce_ns(const Topology& topology, std::int64_t bytes, std::int64_t world_size);

/// The same for any operation of ddp::cost_ns(), which prices all but all-reduces, with the slowest
/// link in use. `bytes` is Operation::payload_bytes().
std::int64_t cost_ns(const Topology& topology, c10d::OpType operation, std::int64_t bytes,
                     std::int64_t world_size);

/// Throws c10::ValueError, which says what is wrong, for a node without GPUs or a negative cost.
void check(const Topology& topology);

}  // namespace ddp::cluster
