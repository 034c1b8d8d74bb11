// PyTorch's benchmark of DistributedDataParallel (benchmarks/distributed/ddp): how long a training
// iteration of four ResNets takes on one rank without DDP, and on more and more ranks with it.
//
// Here DDP is the student's stage 03 and libtorch's c10d::Reducer, with the same bucket size. They
// are interleaved, iteration by iteration, each on a model of its own; so are several bucket sizes.
// Ranks that are not part of a round wait. Percentiles are over the times of all ranks together.
#include <ATen/ATen.h>

#include <cstdio>
#include <map>

#include "ddp/backends/cuda.h"
#include "experiments/ddp_suite/suite.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/interleaved.h"
#include "harness/resumable_rows.h"
#include "harness/variants.h"

namespace {

using namespace ddp;

const Hardware kPublished = {.gpus = 8, .model = "V100"};

const std::map<std::string, Size> kPresets = {
    {"quick", {.batch = 4, .image = 32, .warmup = 1}},  // steps: SuiteModel::quick_steps
    {"full", {.batch = 32, .image = 224, .steps = 10, .warmup = 5}},
    {"paper", {.batch = 32, .image = 224, .steps = 10, .warmup = 5}},
    {kPublishedPreset, {.batch = 32, .image = 224, .steps = 1, .warmup = 0}},
};
const PresetsInWords kInWords = {
    .quick =
        "the real models; batch 4, 32x32 images, 1 warm-up, 3 measured iterations (2 of "
        "resnext101_32x8d); several bucket sizes: resnet50 alone, 8 iterations",
    .full = "batch 32, 224x224 images, 5 warm-ups, 10 measured iterations, on what is here",
    .paper = "the same on machines with 8 V100 GPUs each, as published",
    .published =
        "the same, to 64 GPUs with buckets of 25 and of 1 MB, computed for the published "
        "hardware with the stage's code on a simulated cluster: seconds, without a GPU",
};

// Sets from the preset what no flag has set.
void apply_preset(const CLI::App& line, SuiteSettings& settings) {
  if (settings.preset == kPublishedPreset && line.count("--bucket-size") == 0) {
    settings.bucket_sizes = {25, 1};
  }
  if (settings.preset == "quick" && settings.bucket_sizes.size() > 1) {
    const bool chosen = !settings.workload.model.empty();
    settings.workload.model = chosen ? settings.workload.model : "resnet50";
    apply_preset(settings.workload.size, {.steps = 8});
  }
  apply_preset(settings.workload.size, kPresets.at(settings.preset));
}

void report(const SuiteSettings& settings, const SuiteHeader& header, const Result& result) {
  const bool one_size = settings.bucket_sizes.size() == 1;
  const int batch = settings.workload.size.batch;
  for (std::size_t model = 0; model < settings.models().size(); ++model) {
    for (const std::int64_t size : settings.bucket_sizes) {
      for (const std::string& variant : kSuiteVariants) {
        const std::string name = variant + (one_size ? "" : ", " + std::to_string(size) + "MB");
        print_rows(select_rows(result, variant, size)[model], batch, name);
      }
    }
  }
  for (const std::int64_t size : settings.bucket_sizes) {
    if (!settings.json.empty()) {
      write_suite_json(settings.json_of(size), header, size,
                       select_rows(result, settings.variant, size), batch);
      std::printf("wrote %s\n", settings.json_of(size).c_str());
    }
  }
}

void compute(const SuiteSettings& settings) {
  const Result result = run_suite_at_published_scale(settings);
  report(settings,
         {.cuda_version = "",
          .backend = result.run.backend,
          .device = result.run.device,
          .bucket_sizes = settings.bucket_sizes},
         result);
  save_result(settings, result);
}

void run_rank(const RankContext& context, const SuiteSettings& settings) {
  const at::Device device =
      device_of_rank(settings.device == "cuda" ? at::kCUDA : at::kCPU, context);
  const BackendPtr backend = make_backend(settings.backend, device, context, kPatience);
  const DeviceContext all = {.device = device,
                             .group = make_process_group(backend, store_for_next_backend(context))};
  keep_freed_memory();
  usable_variants(kSuiteVariants, settings.implementation,
                  all);  // throws if stage 03 is not written
  const SuiteHeader header = {.cuda_version = cuda_version(all.device),
                              .backend = backend->getBackendName(),
                              .device = settings.device,
                              .bucket_sizes = settings.bucket_sizes};
  const Result result = measure_suite(settings, header, context, all);
  if (context.rank == 0) {
    report(settings, header, result);
  }
  barrier(all.group);  // no rank exits while another is still connected to it
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("How long a training iteration takes with DDP on more and more ranks");
  SuiteSettings settings;
  add_flags(line, settings, argc, argv);
  add_resume_flag(line, settings);
  add_flags(line, settings.cluster, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (const std::string mistake = misplaced_flags(
          line, settings, {"--steps", "--warmup", "--distributed-backend", "--rank"});
      !mistake.empty()) {
    return refuse(line, mistake);
  }
  apply_preset(line, settings);
  const int refused = run_and_report([&] {
    if (const int code = check_preset(line, settings, kPublished)) {
      return code;
    }
    settle(line, settings);
    return 0;
  });
  if (refused != 0) {
    return refused;
  }
  if (settings.preset == kPublishedPreset) {
    return run_on_cluster([&] { compute(settings); });
  }
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
