#include "measuring/benchmark.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include "ddp/backends/cuda.h"
#include "ddp/backends/host_staged_backend.h"
#include "ddp/backends/limited_link.h"
#include "ddp/launching/environment.h"
#include "ddp/launching/launch.h"
#include "ddp/meters/whole_file.h"
#include "ddp/ranks/stage_library.h"
#include "ddp/timeline/timeline.h"
#include "measuring/result.h"

namespace ddp {
namespace {

// Before anything is measured. Ranks other than 0 write nothing.
void require_writable_files(const BenchmarkOptions& options) {
  const auto launched = read_launch_environment();
  if (launched && launched->rank > 0) {
    return;
  }
  for (const auto& [file, flag] :
       {std::pair(options.output, "--output"), std::pair(options.trace, "--trace")}) {
    if (!file.empty()) {
      require_writable(file, flag);
    }
  }
}

}  // namespace

UnfinishedCode::UnfinishedCode() {
  void* memory = mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(memory != MAP_FAILED, "no shared memory is left");
  met_ = new (memory) std::atomic<bool>(false);
}

UnfinishedCode::~UnfinishedCode() { munmap(met_, sizeof(std::atomic<bool>)); }

void UnfinishedCode::look_for_it(const std::function<void()>& body, bool tells) {
  try {
    body();
  } catch (const c10::NotImplementedError& error) {
    if (!met_->exchange(true) && tells) {
      std::fprintf(stderr, "%s\n", error.msg().c_str());
    }
  }
}

BackendPtr make_backend(const std::string& name, const at::Device& device,
                        const RankContext& context, std::chrono::milliseconds timeout) {
  if (name == kGlooBackend && device.is_cuda()) {
    return c10::make_intrusive<HostStagedBackend>(make_gloo_backend(context, timeout));
  }
  BackendPtr own = make_device_backend(device, context, timeout);
  TORCH_CHECK_VALUE(
      name.empty() || own->getBackendName() == name, name,
      " needs --device cuda and a GPU of its own for each rank; choose gloo, or leave "
      "the choice to the program");
  return own;
}

BackendPtr limited(BackendPtr backend, const LinkLimit& limit) {
  if (limit.rate_gbit == 0 && limit.latency_us == 0) {
    return backend;
  }
  const NetworkModel network = {.alpha_ns = std::llround(1e3 * limit.latency_us),
                                .beta_ns_per_byte = limit.rate_gbit > 0 ? 8 / limit.rate_gbit : 0};
  return c10::make_intrusive<LimitedLink>(std::move(backend), network);
}

DeviceContext make_device_context(const BenchmarkOptions& options, const RankContext& context,
                                  std::chrono::milliseconds timeout) {
  const at::Device device =
      device_of_rank(options.device == "cuda" ? at::kCUDA : at::kCPU, context);
  if (device.is_cpu() && placement_of(context).one_machine) {
    keep_to_own_cores(context.rank, context.world_size);  // before Gloo starts its thread
  }
  const BackendPtr backend =
      limited(make_backend(options.backend, device, context, timeout), options);
  if (options.trace.empty()) {
    return {device, make_process_group(backend, store_for_next_backend(context))};
  }
  TORCH_CHECK(device.is_cpu(),
              "--trace follows CPU tensors only: the host does not see when a GPU has done "
              "something. Leave out --device cuda, or take a profiler that asks the GPU");
  const auto timeline = std::make_shared<Timeline>();
  timeline->set_group("set-up");
  DeviceContext device_context = {
      .device = device,
      .group = make_process_group(c10::make_intrusive<TimelineBackend>(backend, timeline),
                                  store_for_next_backend(context)),
      .timeline = timeline};
  timeline->set_origin(agree_on_origin(device_context.group, placement_of(context).one_machine));
  return device_context;
}

int run_and_report(const std::function<int()>& run) {
  try {
    return run();
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}

int run_benchmark(const BenchmarkOptions& options, const RankFunction& body) {
  return run_and_report([&] {
    require_writable_files(options);
    UnfinishedCode unfinished;
    const int code = launch({.world_size = options.world_size}, [&](RankContext& context) {
      const bool tells = context.forked || context.rank == 0;
      unfinished.look_for_it([&] { body(context); }, tells);
    });
    return unfinished.found() ? kUnfinished : code;
  });
}

void run_with_stage(const BenchmarkOptions& options, const std::string& stage,
                    const std::function<void()>& body) {
  load_stage_library(stage_library(options.implementation, stage));
  try {
    body();
  } catch (const c10::NotImplementedError& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, stage, " is unfinished: ", error.msg());
  }
}

int run_benchmark(const BenchmarkOptions& options, const std::string& stage,
                  const RankFunction& body) {
  return run_benchmark(options, [&](RankContext& context) {
    run_with_stage(options, stage, [&] { body(context); });
  });
}

Run to_run(const BenchmarkOptions& options, const std::string& program, const std::string& backend,
           const std::string& device, int world_size) {
  return {.program = program,
          .implementation = options.implementation,
          .preset = options.preset,
          .backend = backend,
          .device = device,
          .world_size = world_size,
          .seed = options.seed,
          .command = options.command_line};
}

Run to_run(const BenchmarkOptions& options, const std::string& program,
           const ProcessGroupPtr& group) {
  return to_run(options, program, group->getDefaultBackend()->getBackendName(), options.device,
                group->getSize());
}

std::filesystem::path result_path(const BenchmarkOptions& options, const Run& run) {
  return options.output.empty() ? default_result_path(run) : std::filesystem::path(options.output);
}

void save_result(const BenchmarkOptions& options, const Result& result) {
  const std::filesystem::path file = result_path(options, result.run);
  write_result(result, file);
  std::printf("wrote %s\n", file.c_str());
}

void save_trace(const BenchmarkOptions& options, const RankContext& context,
                const std::vector<Span>& spans) {
  if (options.trace.empty()) {
    return;
  }
  const std::vector<RankSpans> ranks = gather_spans(spans, context);
  if (context.rank == 0) {
    write_chrome_trace(ranks, options.trace);
    std::printf("wrote %s\n", options.trace.c_str());
  }
}

void save_trace(const BenchmarkOptions& options, const RankContext& context,
                const DeviceContext& device_context) {
  if (device_context.timeline) {
    device_context.timeline->settle();
    save_trace(options, context, device_context.timeline->take_spans());
  }
}

}  // namespace ddp
