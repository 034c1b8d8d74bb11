#pragma once

#include "ddp/ranks/rank_context.h"
#include "ddp/ranks/rank_report.h"

namespace ddp {

/// Runs `body` in `options.world_size` forked processes, a rank each, and returns when all of them
/// have ended, by themselves or by force at the deadline. Nothing of theirs is left: no process, no
/// file, no port.
///
/// The calling process must be single-threaded, so that a fork is a faithful copy; it may have
/// loaded libtorch but not used it. Each rank has its own log, dies with its parent, and may not
/// write core files. Throws c10::Error if the caller has threads, or no process can be made.
RankReports fork_ranks(const ForkOptions& options, const RankBody& body);

}  // namespace ddp
