#pragma once

#include <string>
#include <vector>

#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/partial_result.h"

namespace ddp {

// For programs that measure several worlds of ranks, one after the other, and write one result.

/// The worlds to run: that of --world-size where it is given; under torchrun, mpirun or srun, the
/// one that they have started; else `preset`. To be called when the command line has been read.
std::vector<int> choose_worlds(const CommandLine& line, const BenchmarkOptions& options,
                               const std::vector<int>& preset);

/// Says in --help what --world-size means for such a program.
void describe_worlds(CommandLine& line, const std::vector<int>& preset);

/// Says on stderr why options.trace cannot be drawn, if it cannot: there is more than one world.
bool can_be_traced(const BenchmarkOptions& options, const std::vector<int>& worlds);

/// Runs `body(context, settings)` in each world, with the stage's library loaded: see
/// run_benchmark(). `Settings` are BenchmarkOptions with more; `body` gets them as they are in its
/// world: with its size, and, in all worlds but the first, with `later_world`, since the ranks of
/// each world are new processes, which go on with the rows that those of the worlds before have
/// saved.
/// Stops at the first world that fails, and returns its exit code. Refuses options.trace for more
/// than one world.
template <typename Settings, typename Body>
int run_benchmark_in_worlds(Settings settings, const std::vector<int>& worlds, const std::string& stage,
               const Body& body) {
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

/// The header of the result of all `worlds`, for ResumableRows: the same in each of them. `run` is this
/// world's; the result has the last world's number of ranks, and, on GPUs, the names of the
/// backends of all worlds: NCCL where every rank has a GPU of its own, else Gloo. `parameters` are
/// followed by "worlds".
PartialResult header_of_worlds(const std::vector<int>& worlds, Run run, Parameters parameters);

}  // namespace ddp
