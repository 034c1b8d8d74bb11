#pragma once

#include <cstdint>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace ddp {

/// The alpha-beta model of a network: a message of n bytes takes alpha + n * beta. Each rank has
/// one outgoing and one incoming port, which work at the same time (full duplex).
struct NetworkModel {
  /// Latency of a message, in nanoseconds.
  std::int64_t alpha_ns = 10'000;
  /// Time of one byte, in nanoseconds: 0.1 is 10 GB/s.
  double beta_ns_per_byte = 0.1;
  /// The caller's time to launch an operation (o), in nanoseconds.
  std::int64_t launch_overhead_ns = 0;
};

/// How long an operation lasts once all ranks have launched it, in nanoseconds, rounded to the
/// nearest. `bytes` is S, what one rank contributes (Operation::payload_bytes()); p is the world
/// size:
///
///     all-reduce         2 (p-1) alpha + 2 (p-1)/p S beta   ring: reduce-scatter, then all-gather
///     reduce-scatter       (p-1) alpha +   (p-1)/p S beta   ring; S is the whole input
///     all-gather           (p-1) alpha +   (p-1)   S beta   ring; S is one rank's part
///     all-to-all           (p-1) alpha +   (p-1)/p S beta   direct, one peer after the other
///     gather, scatter      (p-1) alpha +   (p-1)   S beta   the root's port; S is one rank's part
///     broadcast, reduce    ceil(log2 p) (alpha + S beta)    binomial tree
///     barrier              ceil(log2 p) alpha               dissemination
///     send, recv           alpha + S beta                   one message, see MessageTimes
///
/// With p = 1 every collective is free. The tests call this same function with the operations they
/// recorded. Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication
/// Operations in MPICH", 2005. Throws c10::Error for an operation it does not know.
std::int64_t cost_ns(const NetworkModel& network, c10d::OpType operation, std::int64_t bytes,
                     int world_size);

}  // namespace ddp
