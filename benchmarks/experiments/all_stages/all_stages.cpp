// One small step of every stage, to see at a glance what is finished: it calls each contract once
// to warm up, and once on the clock. The times are of toys and compare nothing; the other
// benchmarks measure.
#include <cstdio>
#include <filesystem>

#include "ddp/meters/statistics.h"
#include "experiments/all_stages/smoke_test.h"
#include "harness/command_line.h"

namespace {

using namespace ddp;

// Each stage is a run of its own, with a trace of its own: trace.json becomes
// trace.01_naive_ddp.json.
std::string trace_of_stage(const SmokeTest& test, const std::string& trace) {
  const std::filesystem::path file(trace);
  const std::string end = "." + test.stage + file.extension().string();
  return trace.empty() ? "" : std::filesystem::path(file).replace_extension(end).string();
}

int run_stage(const SmokeTest& test, BenchmarkOptions options) {
  options.trace = trace_of_stage(test, options.trace);
  return run_benchmark(options, test.stage, [&](const RankContext& context) {
    const DeviceContext device_context = make_device_context(options, context);
    test.step(device_context);
    barrier(device_context.group);
    const Stopwatch watch;
    test.step(device_context);
    if (context.rank == 0) {
      std::printf("%-20s%8.2f ms\n", test.stage.c_str(), 1e3 * watch.seconds());
      std::fflush(stdout);
    }
    save_trace(options, context, device_context);
  });
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CommandLine line("One small step of every stage");
  BenchmarkOptions options;
  add_flags(line, options, argc, argv);
  if (const auto code = line.parse(argc, argv)) {
    return *code;
  }
  bool failed = false, unfinished = false;
  for (const SmokeTest& test : smoke_tests()) {
    const int code = run_stage(test, options);
    unfinished |= code == kUnfinished;
    failed |= code != 0 && code != kUnfinished;
  }
  return failed ? 1 : unfinished ? kUnfinished : 0;
}
