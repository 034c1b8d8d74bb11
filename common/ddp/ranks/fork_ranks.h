#pragma once

#include "ddp/ranks/companion.h"
#include "ddp/ranks/rank_context.h"
#include "ddp/ranks/rank_report.h"

namespace ddp {

/// Runs `body` in `options.world_size` forked processes, one for each rank, and returns when all
/// have ended, by themselves or killed at the deadline. They leave nothing behind: no process, no
/// file, no port.
///
/// The calling process must be single-threaded, so that a fork is a faithful copy; it may have
/// loaded libtorch but not used it. Each rank has its own log, dies with its parent, and writes no
/// core files. With a companion, that one knows who hangs, instead of the deadline. Throws c10::Error
/// if the caller has several threads or a process cannot be started.
RankReports fork_ranks(const ForkOptions& options, const RankBody& body,
                       Companion* companion = nullptr);

}  // namespace ddp
