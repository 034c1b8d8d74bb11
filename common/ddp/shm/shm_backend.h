#pragma once

#include "ddp/launching/launch.h"

namespace ddp {

/// A backend whose ranks share memory, for CPU tensors of ranks on one machine: as fast as memory
/// and a core or two allow, so that a benchmark shows what an algorithm costs besides a network's
/// stack. Reductions are done in place, in the order of the ranks. It has all-reduce, reduce-scatter
/// and all-gather (of one tensor each), broadcast, barrier, and messages with the tags 0 to 3, and
/// throws c10::Error for the rest.
///
/// Every rank reads what all others have, so an all-reduce costs each of N ranks (N-1) S bytes: it
/// is meant for few ranks. A thread does the operations, one after the other, and another one those of
/// each message's direction, peer and tag: to hand an operation over and back takes some 10 us.
///
/// All ranks must call it. The calling thread is kept on a core of its own from now on, if there are
/// as many cores as ranks. Throws c10::Error if they run on several machines. An operation that
/// takes longer than `timeout`, or that needs a rank that has ended, throws c10::Error.
BackendPtr make_shm_backend(const RankContext& context,
                            std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace ddp
