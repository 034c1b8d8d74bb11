#include "ddp/ranks/cores.h"

#include <sched.h>

namespace ddp {

void keep_to_own_cores(int local_rank, int local_ranks) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return;
  }
  const int share = CPU_COUNT(&allowed) / local_ranks;
  if (share == 0) {
    return;
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  int nth = 0;  // of the allowed cores
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) && nth++ / share == local_rank) {
      CPU_SET(core, &own);
    }
  }
  sched_setaffinity(0, sizeof own, &own);
}

}  // namespace ddp
