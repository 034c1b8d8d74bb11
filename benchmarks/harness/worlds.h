#pragma once

#include <string>
#include <vector>

#include "harness/benchmark.h"

namespace ddp {

// For programs that measure several world sizes, one after the other, and write one result.

/// The world sizes to run: that of --world-size if it is given; under torchrun, mpirun or srun, the
/// one they started; else `preset`. Call it after the command line has been parsed.
std::vector<int> choose_worlds(const CLI::App& line, const BenchmarkOptions& options,
                               const std::vector<int>& preset);

/// Describes in --help what --world-size means for such a program.
void describe_worlds(CLI::App& line, const std::vector<int>& preset);

/// Reports on stderr if options.trace is impossible because there is more than one world.
bool can_be_traced(const BenchmarkOptions& options, const std::vector<int>& worlds);

/// Runs `body(context, settings)` in each world, with the stage's library loaded: see
/// run_benchmark(). `Settings` are BenchmarkOptions with more; `body` gets them with the size of
/// its world, and with `later_world` set in all worlds but the first: the ranks of each world are
/// new processes, which continue the rows that earlier worlds have saved.
/// Stops at the first world that fails, and returns its exit code. Refuses options.trace for more
/// than one world.
template <typename Settings, typename Body>
int run_benchmark_in_worlds(Settings settings, const std::vector<int>& worlds,
                            const std::string& stage, const Body& body) {
  if (!can_be_traced(settings, worlds)) {
    return 1;
  }
  for (const int world : worlds) {
    settings.world_size = world;
    const int code =
        run_benchmark(settings, stage, [&](RankContext& context) { body(context, settings); });
    if (code != 0) {
      return code;
    }
    settings.later_world = true;
  }
  return 0;
}

/// The header of the result of all `worlds`, for ResumableRows: the same in each of them. `run` is
/// this world's; the result has the last world's number of ranks, and, on GPUs, the names of the
/// backends of all worlds: NCCL where every rank has a GPU of its own, else Gloo. "worlds" is added
/// after `parameters`.
Result header_of_worlds(const std::vector<int>& worlds, Run run, Parameters parameters);

}  // namespace ddp
