#pragma once

#include <chrono>

#include "ddp/launching/process_group.h"
#include "ddp/ranks/fork_ranks.h"

namespace ddp {

struct LaunchOptions {
  /// How many ranks to fork. A launcher's world size takes precedence.
  int world_size = 2;
  /// Intra-op threads of each rank.
  int threads_per_rank = 1;
  /// Forked ranks that still run at the deadline are stopped, and say where they were.
  std::chrono::milliseconds deadline = std::chrono::hours(6);
};

/// The main function of a program with many ranks. Under a launcher, this process is
/// one rank and runs `function`; otherwise `function` runs in forked ranks on this machine, which end with
/// this process. The ranks' output is passed through. If a rank fails, its report goes to stderr.
///
/// Returns the program's exit code: 0 if all ranks of this process finished, else 1.
int launch(const LaunchOptions& options, const RankFunction& function);

/// Where a rank runs in relation to the others.
struct Placement {
  /// This rank's index among those on its machine.
  int local_rank = 0;
  /// True if all ranks run on one machine, so that they reach each other by the loopback address.
  bool one_machine = true;
};

/// For a rank of launch() or fork_ranks().
Placement placement_of(const RankContext& context);

/// A Gloo backend, or process group, of all ranks. All ranks must call it, and make several calls
/// in the same order. DDP_LAB_TIMEOUT_S in the environment shortens the timeout.
BackendPtr make_gloo_backend(const RankContext& context, std::chrono::milliseconds timeout);
ProcessGroupPtr make_gloo_group(const RankContext& context,
                                std::chrono::milliseconds timeout = std::chrono::minutes(5));

/// A backend of the first `ranks` alone, with a store of theirs, after one of all ranks was made.
BackendPtr make_gloo_backend_of_first(int ranks, const StorePtr& store, const RankContext& context,
                                      std::chrono::milliseconds timeout);

/// A part of the ranks' store, for one more backend. Ranks that make their backends in the same
/// order get the same part.
StorePtr store_for_next_backend(const RankContext& context);

/// Pins the calling thread, and those that it starts from now on, to this rank's equal share of the
/// process's cores; does nothing if there are fewer cores than ranks. Otherwise two ranks that wake
/// each other may share a core while another is idle.
void keep_to_own_cores(int local_rank, int local_ranks);

}  // namespace ddp
