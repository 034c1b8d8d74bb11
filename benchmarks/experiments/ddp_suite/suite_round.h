#pragma once

#include <string>
#include <vector>

#include "harness/benchmark.h"

namespace ddp {

/// A round of the suite: its first `ranks` ranks train, the others wait.
struct SuiteRound {
  std::string name;  // "no ddp", "1M/2G": on one machine, with two of its GPUs
  int ranks = 1;
  bool uses_ddp = true;  // false: one rank without DDP
};

/// "no ddp"; on one machine 1, 2, 4, 8 ... ranks and all that it has; then one more whole machine
/// at a time; finally all ranks. `local_ranks` has each rank's number on its machine.
std::vector<SuiteRound> plan_suite_rounds(const std::vector<int>& local_ranks);

/// Each rank's number on its machine. Collective.
std::vector<int> gather_local_ranks(const RankContext& context,
                                    const DeviceContext& device_context);

/// How many ranks are started here without a launcher. On GPUs: as many as there are. On the CPU:
/// 2, 4 or 8, if each rank has a core, and `bytes_of_rank` of memory.
int default_suite_ranks(const std::string& device, double bytes_of_rank);

}  // namespace ddp
