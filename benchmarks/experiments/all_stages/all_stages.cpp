// One small step of every stage, to see at a glance what is finished: it calls each contract once
// to warm up, and times the second call. The models are toys, so the times allow no comparison; use
// the other benchmarks for that.
#include <ATen/ATen.h>

#include <cstdio>
#include <filesystem>

#include "01_naive_ddp/naive_ddp.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "03_bucketed_ddp/bucketed_ddp.h"
#include "04_sync_batch_norm/sync_batch_norm.h"
#include "05_ring_all_reduce/ring_all_reduce.h"
#include "ddp/meters/statistics.h"
#include "ddp/models/toy_models.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"

namespace {

using namespace ddp;

using MakeSynchronizer = std::unique_ptr<GradientSynchronizer> (*)(const Model&,
                                                                   const ProcessGroupPtr&);

void train(const DeviceContext& device_context, MakeSynchronizer make) {
  const ToyOptions options = {.device = device_context.device};
  const auto model = make_toy_model(ToyKind::kMlp, options);
  const auto synchronizer = make(*model, device_context.group);
  toy_loss(*model, make_toy_batch(options, device_context.group->getRank(), /*step=*/0)).backward();
  synchronizer->finish();
}

void naive(const DeviceContext& device_context) {
  train(device_context, [](const Model& model, const ProcessGroupPtr& group) {
    return make_naive_ddp(tensors_of(model.named_parameters()), {}, group);
  });
  train(device_context, [](const Model& model, const ProcessGroupPtr& group) {
    return make_flat_ddp(tensors_of(model.named_parameters()), {}, group);
  });
}

void overlapped(const DeviceContext& device_context) {
  train(device_context, [](const Model& model, const ProcessGroupPtr& group) {
    return make_overlapped_ddp(tensors_of(model.named_parameters()), {}, group);
  });
}

void bucketed(const DeviceContext& device_context) {
  train(device_context, [](const Model& model, const ProcessGroupPtr& group) {
    return make_bucketed_ddp(tensors_of(model.named_parameters()), {}, group);
  });
}

void batch_norm(const DeviceContext& device_context) {
  const at::Tensor input =
      at::rand({8, 4}, at::device(device_context.device)).set_requires_grad(true);
  sync_batch_norm(input, {}, device_context.group).sum().backward();
}

void ring(const DeviceContext& device_context) {
  ring_all_reduce(at::ones({1000}, at::device(device_context.device)), device_context.group);
}

struct Stage {
  const char* name;
  void (*step)(const DeviceContext&);
};

constexpr Stage kStages[] = {
    {"01_naive_ddp", naive},       {"02_overlapped_ddp", overlapped},
    {"03_bucketed_ddp", bucketed}, {"04_sync_batch_norm", batch_norm},
    {"05_ring_all_reduce", ring},
};

// Each stage is a run of its own, with its own trace: trace.json becomes trace.01_naive_ddp.json.
std::string trace_of_stage(const Stage& stage, const std::string& trace) {
  const std::filesystem::path file(trace);
  const std::string end = "." + std::string(stage.name) + file.extension().string();
  return trace.empty() ? "" : std::filesystem::path(file).replace_extension(end).string();
}

int run_stage(const Stage& stage, BenchmarkOptions options) {
  options.trace = trace_of_stage(stage, options.trace);
  return run_benchmark(options, stage.name, [&](const RankContext& context) {
    const DeviceContext device_context = make_device_context(options, context);
    stage.step(device_context);
    barrier(device_context.group);
    const Stopwatch watch;
    stage.step(device_context);
    if (context.rank == 0) {
      std::printf("%-20s%8.2f ms\n", stage.name, 1e3 * watch.seconds());
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
  for (const Stage& stage : kStages) {
    const int code = run_stage(stage, options);
    unfinished |= code == kUnfinished;
    failed |= code != 0 && code != kUnfinished;
  }
  return failed ? 1 : unfinished ? kUnfinished : 0;
}
