#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/launching/launch.h"
#include "ddp/timeline/timeline.h"
#include "measuring/result.h"

namespace CLI {

class App;  // the command line of a program; benchmarks/measuring/command_line.h has all of it
}

namespace ddp {

/// The values of BenchmarkOptions::backend. Gloo moves a GPU's tensors through host memory, NCCL no
/// others.
constexpr const char* kGlooBackend = "gloo";
constexpr const char* kNcclBackend = "nccl";

/// What a link is slowed down to; see LimitedLink. Zeros: as it is.
struct LinkLimit {
  double rate_gbit = 0;
  double latency_us = 0;  // of a message
};

/// The options on every benchmark's command line.
struct BenchmarkOptions : LinkLimit {
  std::string implementation = "assignments";
  std::string preset = "quick";
  std::string device = "cpu";
  std::string backend;  // empty: make_device_backend()'s
  int world_size = 2;
  std::uint64_t seed = 0;
  std::string output;        // the result file; empty: default_result_path()
  std::string trace;         // the timeline's file; empty: no timeline
  bool resume = false;       // continue an earlier run's measurements; see ResumableRows
  bool later_world = false;  // continue what this run measured in earlier worlds
  std::string command_line;  // repeats this run
};

/// A benchmark's exit code if the code it measures is not written yet.
constexpr int kUnfinished = 3;

/// Its exit code if the preset asks for hardware that this machine does not have.
constexpr int kRefused = 4;

/// Finds out whether forked ranks met code that is not written yet. Made in the parent, before the
/// fork.
class UnfinishedCode {
 public:
  UnfinishedCode();
  UnfinishedCode(const UnfinishedCode&) = delete;
  UnfinishedCode& operator=(const UnfinishedCode&) = delete;
  ~UnfinishedCode();

  /// In a rank: runs `body`. A c10::NotImplementedError, as stubs throw, ends it; the first rank
  /// that `tells` prints its message to stderr.
  void look_for_it(const std::function<void()>& body, bool tells = true);

  /// In the parent: whether there was any.
  bool found() const { return *met_; }

 private:
  std::atomic<bool>* met_;  // in shared memory
};

/// Where a rank computes, and the process group it communicates through.
struct DeviceContext {
  at::Device device;
  ProcessGroupPtr group;
  /// This rank's timeline, in real time; null without options.trace.
  std::shared_ptr<Timeline> timeline = nullptr;
};

/// The backend of that name for the device's tensors; the device's own if it is empty. All ranks
/// must call it. Throws c10::ValueError if it does not move such tensors.
BackendPtr make_backend(const std::string& name, const at::Device& device,
                        const RankContext& context,
                        std::chrono::milliseconds timeout = std::chrono::minutes(5));

/// The backend behind a LimitedLink; as it is without a limit.
BackendPtr limited(BackendPtr backend, const LinkLimit& limit);

/// All ranks must call it. The link is limited as the options say. With options.trace the group's
/// operations are recorded (see TimelineBackend), at first as a group named "set-up"; on a GPU that
/// throws c10::Error. A rank waits for the others until `timeout`.
DeviceContext make_device_context(const BenchmarkOptions& options, const RankContext& context,
                                  std::chrono::milliseconds timeout = std::chrono::minutes(5));

/// The exit code of `run`: what it returns, or 1 if it throws, after the message on stderr.
int run_and_report(const std::function<int()>& run);

/// Runs `body` in options.world_size ranks (see launch()). Returns the program's exit code: 0;
/// kUnfinished if the ranks threw c10::NotImplementedError, as stubs do, after printing its message
/// to stderr; otherwise 1, after a report on stderr.
int run_benchmark(const BenchmarkOptions& options, const RankFunction& body);

/// The same with the library of `stage` loaded in each rank, for programs that measure one stage.
int run_benchmark(const BenchmarkOptions& options, const std::string& stage,
                  const RankFunction& body);

/// In a rank: runs `body` with the library of `stage`. Of a stub the exception says which stage.
void run_with_stage(const BenchmarkOptions& options, const std::string& stage,
                    const std::function<void()>& body);

/// A Run filled in from `options`: on the ranks of a group, or on others.
Run to_run(const BenchmarkOptions& options, const std::string& program,
           const ProcessGroupPtr& group);
Run to_run(const BenchmarkOptions& options, const std::string& program, const std::string& backend,
           const std::string& device, int world_size);

/// options.output, or the default place of what `run` measures.
std::filesystem::path result_path(const BenchmarkOptions& options, const Run& run);

/// Writes the result to options.output or its default place, and prints the path to stdout.
void save_result(const BenchmarkOptions& options, const Result& result);

/// Writes all ranks' spans to options.trace, and prints the path to stdout. Collective; does
/// nothing without options.trace.
void save_trace(const BenchmarkOptions& options, const RankContext& context,
                const std::vector<Span>& spans);

/// The same for everything recorded in `device_context`.
void save_trace(const BenchmarkOptions& options, const RankContext& context,
                const DeviceContext& device_context);

}  // namespace ddp
