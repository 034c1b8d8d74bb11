// One small step of every stage, to see at a glance what is finished, on one machine or several: it
// calls each contract once, and compares values with those of one process, then once more on the
// clock. The times are of toys and compare nothing; the other benchmarks measure. Only the graded
// tests, on one machine, judge what a stage does besides.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "01_naive_ddp/naive_ddp.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "03_bucketed_ddp/bucketed_ddp.h"
#include "04_sync_batch_norm/sync_batch_norm.h"
#include "05_ring_all_reduce/ring_all_reduce.h"
#include "ddp/meters/statistics.h"
#include "ddp/models/toy_models.h"
#include "measuring/command_line.h"
#include "smoke_test.h"

namespace ddp {
namespace {

constexpr double kTolerance = 1e-6;  // of float64, but of a GPU's, too

// A function's static, so that it is there before the first registration.
std::vector<SmokeTest>& registry() {
  static std::vector<SmokeTest> tests;
  return tests;
}

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

// Those of these numbers, all if there are none, in the order of the stages' names.
std::vector<SmokeTest> chosen(const std::vector<std::string>& numbers) {
  std::vector<SmokeTest> tests = registry();
  std::erase_if(tests, [&](const SmokeTest& test) {
    return !numbers.empty() && std::ranges::count(numbers, test.stage.substr(0, 2)) == 0;
  });
  std::ranges::sort(tests, {}, &SmokeTest::stage);
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

bool register_smoke_test(SmokeTest test) {
  registry().push_back(std::move(test));
  return true;
}

void expect_equal(const std::string& what, const at::Tensor& found, const at::Tensor& expected) {
  TORCH_CHECK(found.defined(), what, " is undefined");
  TORCH_CHECK(at::allclose(found, expected, kTolerance, kTolerance), what,
              " is not what one process computes for all ranks: they differ by ",
              (found - expected).abs().max().item<double>());
}

void train_toy(const DeviceContext& device_context, const MakeSynchronizer& make) {
  const int rank = device_context.group->getRank();
  const int world_size = device_context.group->getSize();
  ToyOptions options = {.device = device_context.device};
  const auto whole =
      make_toy_model(ToyKind::kMlp, options);  // of one process, from rank 0's weights
  for (int each = 0; each < world_size; ++each) {
    (toy_loss(*whole, make_toy_batch(options, each, /*step=*/0)) / world_size).backward();
  }
  const Batch batch = make_toy_batch(options, rank, /*step=*/0);
  options.seed = rank;
  const auto model = make_toy_model(ToyKind::kMlp, options);
  const auto synchronizer = make(*model, device_context.group);
  toy_loss(*model, batch).backward();
  synchronizer->finish();
  const auto expected = whole->named_parameters();
  const auto found = model->named_parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, parameter] = expected[i];
    expect_equal(name + " after construction", found[i].tensor, parameter);
    expect_equal("the gradient of " + name, found[i].tensor.grad(), parameter.grad());
  }
}

namespace {

void step_naive_ddp(const DeviceContext& device_context) {
  train_toy(device_context, [](const Model& model, const ProcessGroupPtr& group) {
    return make_naive_ddp(tensors_of(model.named_parameters()), {}, group);
  });
  train_toy(device_context, [](const Model& model, const ProcessGroupPtr& group) {
    return make_flat_ddp(tensors_of(model.named_parameters()), {}, group);
  });
}

const bool kRegistered01 = register_smoke_test({"01_naive_ddp", step_naive_ddp});

void step_overlapped_ddp(const DeviceContext& device_context) {
  train_toy(device_context, [](const Model& model, const ProcessGroupPtr& group) {
    return make_overlapped_ddp(tensors_of(model.named_parameters()), {}, group);
  });
}

const bool kRegistered02 = register_smoke_test({"02_overlapped_ddp", step_overlapped_ddp});

void step_bucketed_ddp(const DeviceContext& device_context) {
  train_toy(device_context, [](const Model& model, const ProcessGroupPtr& group) {
    return make_bucketed_ddp(tensors_of(model.named_parameters()), {}, group);
  });
}

const bool kRegistered03 = register_smoke_test({"03_bucketed_ddp", step_bucketed_ddp});

constexpr int kSamples = 8;  // of each rank
constexpr int kChannels = 4;

// Forward and backward over the batches of all ranks, beside libtorch's over the whole batch. The
// samples lie apart, so that each rank's own statistics are far from those of all.
void step_sync_batch_norm(const DeviceContext& device_context) {
  const int rank = device_context.group->getRank();
  const std::int64_t samples = std::int64_t{kSamples} * device_context.group->getSize();
  const auto options = at::device(device_context.device).dtype(at::kDouble);
  const at::Tensor values =
      at::arange(samples * kChannels, options).square().view({samples, kChannels});
  const at::Tensor upstream = values.sin();
  const at::Tensor whole = values.clone().set_requires_grad(true);
  const at::Tensor expected = at::batch_norm(whole, {}, {}, {}, {}, /*training=*/true,
                                             /*momentum=*/0.1, /*eps=*/1e-5, false);
  expected.backward(upstream);
  const auto shard = [&](const at::Tensor& all) {
    return all.narrow(0, std::int64_t{kSamples} * rank, kSamples);
  };
  const at::Tensor input = shard(values).clone().set_requires_grad(true);
  const at::Tensor output = sync_batch_norm(input, {}, device_context.group);
  output.backward(shard(upstream));
  expect_equal("the output", output, shard(expected));
  expect_equal("the gradient of the input", input.grad(), shard(whole.grad()));
}

const bool kRegistered04 = register_smoke_test({"04_sync_batch_norm", step_sync_batch_norm});

void step_ring_all_reduce(const DeviceContext& device_context) {
  // Small whole numbers, whose sums are exact.
  const at::Tensor places = at::arange(1000, at::device(device_context.device).dtype(at::kFloat));
  const at::Tensor tensor = places * (device_context.group->getRank() + 1);
  ring_all_reduce(tensor, device_context.group);
  const int world_size = device_context.group->getSize();
  expect_equal("the sum", tensor, places * (world_size * (world_size + 1) / 2));
}

const bool kRegistered05 = register_smoke_test({"05_ring_all_reduce", step_ring_all_reduce});

}  // namespace
}  // namespace ddp

int ddp_main(int argc, char** argv) {
  using namespace ddp;
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
