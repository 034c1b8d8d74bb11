// One small step of every stage, to see at a glance what is finished, on one machine or several: it
// calls each contract once, and compares values with those of one process, then once more on the
// clock. The times are of toys and compare nothing; the other benchmarks measure. Only the graded
// tests, on one machine, judge what a stage does besides.
#include <ATen/ATen.h>

#include <algorithm>
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

int count_machines(const RankContext& context, const DeviceContext& device_context) {
  const bool first = placement_of(context).local_rank == 0;
  const at::Tensor count = at::full({1}, first ? 1 : 0, at::device(device_context.device));
  all_reduce(count, device_context.group);
  return static_cast<int>(count.item<double>());
}

// Those of these numbers, all if there are none.
std::vector<SmokeTest> chosen(const std::vector<std::string>& numbers) {
  std::vector<SmokeTest> tests = smoke_tests();
  std::erase_if(tests, [&](const SmokeTest& test) {
    return !numbers.empty() && std::ranges::count(numbers, test.stage.substr(0, 2)) == 0;
  });
  return tests;
}

int run_stage(const SmokeTest& test, BenchmarkOptions options) {
  options.trace = trace_of_stage(test, options.trace);
  return run_benchmark(options, test.stage, [&](const RankContext& context) {
    const DeviceContext device_context = make_device_context(options, context);
    const int machines = count_machines(context, device_context);
    test.step(device_context);
    barrier(device_context.group);
    const Stopwatch watch;
    test.step(device_context);
    barrier(device_context.group);  // whoever says that the values agree says so for all ranks
    if (context.rank == 0) {
      std::printf("%-20s%8.2f ms  %d ranks on %d machine%s agree with one process\n",
                  test.stage.c_str(), 1e3 * watch.seconds(), context.world_size, machines,
                  machines > 1 ? "s" : "");
      std::fflush(stdout);
    }
    save_trace(options, context, device_context);
  });
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("One small step of every stage, whose values are compared with one process's");
  BenchmarkOptions options;
  std::vector<std::string> numbers;
  add_flags(line, options, argc, argv);
  line.add_option("--stages", numbers, "Only these, by their numbers: 01,03");
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  const std::vector<SmokeTest> tests = chosen(numbers);
  if (tests.empty()) {
    return refuse(line, "--stages: there is none of these numbers; 01,03 are, for two");
  }
  bool failed = false, unfinished = false;
  for (const SmokeTest& test : tests) {
    const int code = run_stage(test, options);
    unfinished |= code == kUnfinished;
    failed |= code != 0 && code != kUnfinished;
  }
  return failed ? 1 : unfinished ? kUnfinished : 0;
}
