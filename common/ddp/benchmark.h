#pragma once

#include <cstdint>
#include <string>

#include "ddp/launch.h"
#include "ddp/measurement.h"

namespace ddp {

/// What every benchmark's command line takes, see benchmarks/command_line.h.
struct BenchmarkOptions {
  std::string implementation = "assignments";
  std::string preset = "quick";
  std::string device = "cpu";
  int world_size = 2;
  double rate_gbit = 0;  // limits the link, in Gbit/s; 0: as fast as it is
  std::uint64_t seed = 0;
  std::string output;        // the result file; empty: default_result_path()
  std::string command_line;  // that repeats the run
};

/// A benchmark's exit code where the code that it measures is not written yet.
constexpr int kUnfinished = 3;

/// Where a rank computes, and the group by which it talks to the others.
struct Workplace {
  at::Device device;
  ProcessGroupPtr group;
};

/// All ranks must call it. With options.rate_gbit the link is a LimitedLink without latency.
Workplace make_workplace(const BenchmarkOptions& options, const RankContext& context);

/// Runs `body` in options.world_size ranks (see launch()), each with the library of `stage` loaded.
/// Returns the program's exit code: 0; kUnfinished if the ranks met a stub, which one line on
/// stderr names; otherwise 1, after a report on stderr.
int run_benchmark(const BenchmarkOptions& options, const std::string& stage, const RankBody& body);

/// A Run with everything that `options` knows.
Run to_run(const BenchmarkOptions& options, const std::string& program,
           const ProcessGroupPtr& group);

/// Writes the result to options.output or its default place, and says so on stdout.
void save_result(const BenchmarkOptions& options, const Result& result);

}  // namespace ddp
