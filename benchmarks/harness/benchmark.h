#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ddp/ranks/launch.h"
#include "ddp/simulation/timeline.h"
#include "harness/result.h"

namespace ddp {

/// What every benchmark's command line takes, see benchmarks/harness/command_line.h.
struct BenchmarkOptions {
  std::string implementation = "assignments";
  std::string preset = "quick";
  std::string device = "cpu";
  int world_size = 2;
  double rate_gbit = 0;  // limits the link, in Gbit/s; 0: as fast as it is
  std::uint64_t seed = 0;
  std::string output;        // the result file; empty: default_result_path()
  std::string trace;         // the timeline's file; empty: none is drawn
  bool resume = false;       // go on with what an earlier run has left, see ResumableRows
  bool later_world = false;  // go on with what this run has measured in other worlds
  std::string command_line;  // that repeats the run
};

/// A benchmark's exit code where the code that it measures is not written yet.
constexpr int kUnfinished = 3;

/// Its exit code where the preset asks for hardware that this machine does not have.
constexpr int kRefused = 4;

/// Where a rank computes, and the group by which it talks to the others.
struct DeviceContext {
  at::Device device;
  ProcessGroupPtr group;
  /// Where this rank's timeline is drawn, in real time; null without options.trace.
  std::shared_ptr<Timeline> timeline = nullptr;
};

/// All ranks must call it. With options.rate_gbit the link is a LimitedLink without latency. With
/// options.trace what the group does is drawn (see TimelineBackend), as a group named "set-up" at
/// first; throws c10::Error for GPUs then.
DeviceContext make_device_context(const BenchmarkOptions& options, const RankContext& context);

/// Runs `body` in options.world_size ranks (see launch()). Returns the program's exit code: 0;
/// kUnfinished if the ranks threw c10::NotImplementedError, as stubs do, after its message on
/// stderr; otherwise 1, after a report on stderr.
int run_benchmark(const BenchmarkOptions& options, const RankBody& body);

/// The same with the library of `stage` loaded in each rank: for programs that measure one stage.
int run_benchmark(const BenchmarkOptions& options, const std::string& stage, const RankBody& body);

/// A Run with everything that `options` knows.
Run to_run(const BenchmarkOptions& options, const std::string& program,
           const ProcessGroupPtr& group);

/// options.output, or the default place of what `run` measures.
std::filesystem::path result_path(const BenchmarkOptions& options, const Run& run);

/// Writes the result to options.output or its default place, and says so on stdout.
void save_result(const BenchmarkOptions& options, const Result& result);

/// Writes all ranks' spans to options.trace, and says so on stdout. Collective; does nothing
/// without options.trace.
void save_trace(const BenchmarkOptions& options, const RankContext& context,
                const std::vector<Span>& spans);

/// The same for all that `device_context` has drawn.
void save_trace(const BenchmarkOptions& options, const RankContext& context,
                const DeviceContext& device_context);

}  // namespace ddp
