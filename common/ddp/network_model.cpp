#include "ddp/network_model.h"

#include <c10/util/Exception.h>

#include <cmath>

namespace ddp {

std::int64_t cost_ns(const NetworkModel& network, c10d::OpType operation, std::int64_t bytes,
                     int world_size) {
  using c10d::OpType;
  const auto p = static_cast<double>(world_size);
  const auto alpha = static_cast<double>(network.alpha_ns);
  const double transfer = static_cast<double>(bytes) * network.beta_ns_per_byte;
  const double rounds = std::ceil(std::log2(p));
  const auto rounded = [](double ns) { return static_cast<std::int64_t>(std::llround(ns)); };

  switch (operation) {
    case OpType::ALLREDUCE:
    case OpType::ALLREDUCE_COALESCED:
      return rounded(2 * (p - 1) * alpha + 2 * (p - 1) / p * transfer);
    case OpType::REDUCE_SCATTER:
    case OpType::_REDUCE_SCATTER_BASE:
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE:
      return rounded((p - 1) * alpha + (p - 1) / p * transfer);
    case OpType::ALLGATHER:
    case OpType::_ALLGATHER_BASE:
    case OpType::ALLGATHER_COALESCED:
    case OpType::GATHER:
    case OpType::SCATTER:
      return rounded((p - 1) * (alpha + transfer));
    case OpType::BROADCAST:
    case OpType::REDUCE:
      return rounded(rounds * (alpha + transfer));
    case OpType::BARRIER:
      return rounded(rounds * alpha);
    case OpType::SEND:
    case OpType::RECV:
      return rounded(alpha + transfer);
    default:
      TORCH_CHECK(false, "the simulated network has no cost for ", c10d::opTypeToString(operation));
  }
}

}  // namespace ddp
