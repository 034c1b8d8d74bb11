#pragma once

namespace ddp {

/// Keeps the calling thread, and those that it starts from now on, to cores of its own: as many for
/// each of this machine's ranks, of those that the process may use. Does nothing if there are fewer
/// cores than ranks. Threads that wake each other are drawn to one core, where one works while the
/// other waits; two ranks' would be, while another core is idle.
void keep_to_own_cores(int local_rank, int local_ranks);

}  // namespace ddp
