#pragma once

#include <cstdint>
#include <functional>
#include <memory_resource>
#include <vector>

#include "ddp/ranks/fork_ranks.h"
#include "ddp/referee/event.h"
#include "ddp/referee/world.h"

namespace ddp {

/// An event as the referee has seen it.
struct Seen : Event {
  std::int64_t order = 0;  // among the events of its rank
  at::Tensor value;        // kValue: the tensor, undefined if the rank's was
};

/// What a rank said, in its order.
using SeenList = std::pmr::vector<Seen>;

/// All that the ranks of a run said, by rank and in order, and how they ended.
struct Evidence {
  World world;
  RankReports reports;
  std::vector<SeenList> of;
  /// Where the launch of an operation is in `of`, by rank and the operation's number.
  std::vector<std::vector<std::size_t>> launches;
  /// By rank: why what it said cannot be believed; empty if it can.
  std::vector<std::string> doubts;

  const Seen& launch_of(int rank, std::int64_t operation) const {
    return of[rank].at(launches[rank].at(operation));
  }
};

class Client;

/// What a rank of a refereed world does.
using RefereedScenario = std::function<void(Client& client, RankContext& context)>;

/// Runs `scenario` as every rank of `world`, in forked processes whose network is this process; returns
/// what they said. For the calling process see fork_ranks(), whose options hold here too; their
/// deadline is the longest time in which no rank says anything.
Evidence run_refereed(const World& world, ForkOptions options, const RefereedScenario& scenario);

}  // namespace ddp
