#pragma once

#include <functional>

#include "ddp/ranks/rank_context.h"
#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"

namespace ddp {

/// What a rank of a refereed world does.
using RefereedBody = std::function<void(Client& client, RankContext& context)>;

/// Runs `body` as every rank of `world`, in forked processes whose network is this process; returns
/// what they said. For the calling process see fork_ranks(), whose options hold here too; their
/// deadline is the longest time in which no rank says anything.
Evidence run_refereed(const World& world, ForkOptions options, const RefereedBody& body);

}  // namespace ddp
