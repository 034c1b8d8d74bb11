// One small step of every stage, to see at a glance what is finished: it calls each contract once
// to warm up, and once on the clock. The times are of toys and compare nothing; the other
// benchmarks measure.
#include <ATen/ATen.h>

#include <cstdio>
#include <filesystem>

#include "01_naive_ddp/naive_ddp.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "03_bucketed_ddp/bucketed_ddp.h"
#include "04_sync_batch_norm/sync_batch_norm.h"
#include "05_ring_all_reduce/ring_all_reduce.h"
#include "command_line.h"
#include "ddp/benchmark.h"
#include "ddp/toy_models.h"

namespace {

using namespace ddp;

using MakeSynchronizer = std::unique_ptr<GradientSynchronizer> (*)(const Model&,
                                                                   const ProcessGroupPtr&);

void train(const Workplace& workplace, MakeSynchronizer make) {
  const ToyOptions options = {.device = workplace.device};
  const auto model = make_toy_model(ToyKind::kMlp, options);
  const auto synchronizer = make(*model, workplace.group);
  toy_loss(*model, make_toy_batch(options, workplace.group->getRank(), /*step=*/0)).backward();
  synchronizer->finish();
}

void naive(const Workplace& workplace) {
  train(workplace, [](const Model& model, const ProcessGroupPtr& group) {
    return make_naive_ddp(tensors_of(model.named_parameters()), {}, group);
  });
  train(workplace, [](const Model& model, const ProcessGroupPtr& group) {
    return make_flat_ddp(tensors_of(model.named_parameters()), {}, group);
  });
}

void overlapped(const Workplace& workplace) {
  train(workplace, [](const Model& model, const ProcessGroupPtr& group) {
    return make_overlapped_ddp(tensors_of(model.named_parameters()), {}, group);
  });
}

void bucketed(const Workplace& workplace) {
  train(workplace, [](const Model& model, const ProcessGroupPtr& group) {
    return make_bucketed_ddp(tensors_of(model.named_parameters()), {}, group);
  });
}

void batch_norm(const Workplace& workplace) {
  const at::Tensor input = at::rand({8, 4}, at::device(workplace.device)).set_requires_grad(true);
  sync_batch_norm(input, {}, workplace.group).sum().backward();
}

void ring(const Workplace& workplace) {
  ring_all_reduce(at::ones({1000}, at::device(workplace.device)), workplace.group);
}

struct Stage {
  const char* name;
  void (*step)(const Workplace&);
};

constexpr Stage kStages[] = {
    {"01_naive_ddp", naive},       {"02_overlapped_ddp", overlapped},
    {"03_bucketed_ddp", bucketed}, {"04_sync_batch_norm", batch_norm},
    {"05_ring_all_reduce", ring},
};

// Each stage is a run of its own, with a trace of its own: trace.json becomes
// trace.01_naive_ddp.json.
std::string trace_of_stage(const Stage& stage, const std::string& trace) {
  const std::filesystem::path file(trace);
  const std::string end = "." + std::string(stage.name) + file.extension().string();
  return trace.empty() ? "" : std::filesystem::path(file).replace_extension(end).string();
}

int run_stage(const Stage& stage, BenchmarkOptions options) {
  options.trace = trace_of_stage(stage, options.trace);
  return run_benchmark(options, stage.name, [&](const RankContext& context) {
    const Workplace workplace = make_workplace(options, context);
    stage.step(workplace);
    barrier(workplace.group);
    const Stopwatch watch;
    stage.step(workplace);
    if (context.rank == 0) {
      std::printf("%-20s%8.2f ms\n", stage.name, 1e3 * watch.seconds());
      std::fflush(stdout);
    }
    save_trace(options, context, workplace);
  });
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App app("One small step of every stage");
  BenchmarkOptions options;
  add_flags(app, options, argc, argv);
  CLI11_PARSE(app, argc, argv);
  bool failed = false, unfinished = false;
  for (const Stage& stage : kStages) {
    const int code = run_stage(stage, options);
    unfinished |= code == kUnfinished;
    failed |= code != 0 && code != kUnfinished;
  }
  return failed ? 1 : unfinished ? kUnfinished : 0;
}
