// PyTorch's benchmark of DistributedDataParallel (benchmarks/distributed/ddp): how long a training
// iteration of four ResNets takes on one rank without DDP, and on more and more ranks with it.
//
// Here DDP is the student's stage 03 and libtorch's c10d::Reducer, with the same bucket size. They
// are interleaved, iteration by iteration, each on a model of its own; so are several bucket sizes.
// Ranks that are not part of a round wait. Percentiles are over the times of all ranks together.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "ddp/backends/cuda.h"
#include "ddp/launching/environment.h"
#include "ddp/meters/whole_file.h"
#include "experiments/ddp_suite/suite.h"
#include "measuring/benchmark.h"
#include "measuring/command_line.h"
#include "measuring/interleaved.h"
#include "measuring/resumable_rows.h"
#include "measuring/variants.h"
#include "models/resnet.h"

namespace ddp {
namespace {

constexpr SuiteModel kModels[] = {
    {"resnet50", 25'557'032, 2, 3},
    {"resnet101", 44'549'160, 4, 3},
    {"resnext50_32x4d", 25'028'904, 2, 3},
    {"resnext101_32x8d", 88'791'336, 8, 2},
};

// For two replicas of the largest model: weights, momentum, buckets, and temporary gradients.
constexpr double kBytesOfRank = 4.0 * 2 * sizeof(float) * 88'791'336;

}  // namespace

std::vector<SuiteModel> SuiteSettings::models() const {
  std::vector<SuiteModel> chosen;
  for (const SuiteModel& model : kModels) {
    if (workload.model.empty() || workload.model == model.name) {
      chosen.push_back(model);
    }
  }
  return chosen;
}

Parameters SuiteSettings::sizes_as_parameters() const {
  Parameters parameters;
  for (std::size_t i = 0; i < bucket_sizes.size(); ++i) {
    parameters.emplace_back("bucket_size " + std::to_string(i), bucket_sizes[i]);
  }
  return parameters;
}

std::filesystem::path SuiteSettings::json_of(std::int64_t bucket_size) const {
  std::filesystem::path file = json;
  if (bucket_sizes.size() > 1) {
    file.replace_extension(std::to_string(bucket_size) + "MB" + file.extension().string());
  }
  return file;
}

}  // namespace ddp

namespace {

using namespace ddp;

const Hardware kPublished = {.gpus = 8, .model = "V100"};

const std::map<std::string, Size> kPresets = {
    {"quick", {.batch = 4, .image = 32, .steps = 0, .warmup = 1}},  // SuiteModel::quick_steps
    {"full", {.batch = 32, .image = 224, .steps = 10, .warmup = 5}},
    {"paper", {.batch = 32, .image = 224, .steps = 10, .warmup = 5}},
};
constexpr int kQuickStepsOfSizes = 8;
const PresetsInWords kInWords = {
    .quick =
        "the real models; batch 4, 32x32 images, 1 warm-up, 3 measured iterations (2 of "
        "resnext101_32x8d); several bucket sizes: resnet50 alone, 8 iterations",
    .full = "batch 32, 224x224 images, 5 warm-ups, 10 measured iterations, on what is here",
    .paper = "the same on machines with 8 V100 GPUs each, as published",
};

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

void add_json_flags(CLI::App& line, SuiteSettings& settings) {
  add_number(line, "--bucket-size", settings.bucket_sizes,
             "Of DDP, in MB (2^20 bytes); several are interleaved in one run");
  line.add_option(
      "--json", settings.json,
      "Also writes the measurements in the form that tools/report/ddp_diff.py and PyTorch's "
      "diff.py read. Several bucket sizes have a file each, beside --output if this flag "
      "is not given: suite.json becomes suite.25MB.json");
  add_choice(line, "--variant", settings.variant, "What --json calls DDP; both are measured",
             kSuiteVariants);
}

// The flags that the published program also has: --model, --distributed-backend, --bucket-size and
// --json, in addition to those of all benchmarks; then --variant, and those of Workload.
void add_flags(CLI::App& line, SuiteSettings& settings, int argc, char** argv) {
  add_flags(line, static_cast<BenchmarkOptions&>(settings), argc, argv);
  line.remove_option(line.get_option("--trace"));    // use the program timeline instead
  line.remove_option(line.get_option("--backend"));  // PyTorch's name for it is below
  add_flags(line, settings.workload, resnet_names());
  line.get_option("--model")->description("What is trained; default: each of them");
  line.get_option("--steps")->default_str("3; 2 of resnext101_32x8d");
  add_choice(line, "--distributed-backend", settings.backend,
             "What moves gradients; default: what fits --device. nccl implies --device cuda",
             {kGlooBackend, kNcclBackend});
  add_json_flags(line, settings);
  line.get_option("--world-size")
      ->default_str("GPUs: all that are here; CPU: 2, 4 or 8, by cores and memory");
}

CLI::App& add_published_flags(CLI::App& line, SuiteSettings& settings, int argc, char** argv) {
  CLI::App& published = add_published(line, settings, settings.cluster, argc, argv);
  settings.workload.size = {.batch = 32, .image = 224};
  settings.bucket_sizes = {25, 1};
  add_choice(published, "--model", settings.workload.model, "What is trained; default: each",
             resnet_names());
  add_number(published, "--batch-size", settings.workload.size.batch, "Samples of each GPU");
  add_number(published, "--image-size", settings.workload.size.image, "Pixels of an image's side",
             32);
  add_json_flags(published, settings);
  return published;
}

// Sets what follows from other flags. Throws c10::ValueError for flags that contradict each other;
// std::runtime_error, which names file and flag, if rank 0 cannot write the JSON: before hours of
// measuring rather than after.
void settle(SuiteSettings& settings) {
  for (std::size_t i = 1; i < settings.bucket_sizes.size(); ++i) {
    const auto begin = settings.bucket_sizes.begin();
    TORCH_CHECK_VALUE(std::find(begin, begin + i, settings.bucket_sizes[i]) == begin + i,
                      "--bucket-size has ", settings.bucket_sizes[i], " twice; name it once");
  }
  if (settings.bucket_sizes.size() > 1 && settings.json.empty()) {
    settings.json = result_path(settings, {.program = kSuiteProgram,
                                           .implementation = settings.implementation,
                                           .preset = settings.preset});
  }
  const auto launched = read_launch_environment();
  for (const std::int64_t bucket_size : settings.bucket_sizes) {
    if (!settings.json.empty() && (!launched || launched->rank == 0)) {
      require_writable(settings.json_of(bucket_size), "--json");
    }
  }
}

// The same of what only ranks need.
void settle_ranks(const CLI::App& line, SuiteSettings& settings) {
  if (settings.backend == kNcclBackend) {
    TORCH_CHECK_VALUE(line.count("--device") == 0 || settings.device == "cuda",
                      "--distributed-backend nccl moves a GPU's tensors: leave out --device cpu, "
                      "or choose gloo");
    settings.device = "cuda";
  }
  Size& size = settings.workload.size;
  TORCH_CHECK_VALUE(size.batch > 1 || size.image > 32,
                    "--batch-size 1 of 32x32 images leaves BatchNorm one value of each channel, "
                    "which has no variance: give it two images, or larger ones");
  if (settings.preset == "quick" && settings.bucket_sizes.size() > 1) {
    settings.workload.model =
        settings.workload.model.empty() ? "resnet50" : settings.workload.model;
    size.steps = size.steps > 0 ? size.steps : kQuickStepsOfSizes;
  }
  if (!read_launch_environment() && line.count("--world-size") == 0) {
    settings.world_size = default_suite_ranks(settings.device, kBytesOfRank);
  }
  settle(settings);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("How long a training iteration takes with DDP on more and more ranks");
  SuiteSettings settings, computed;
  settings.workload.size = chosen(kPresets, argc, argv);
  add_flags(line, settings, argc, argv);
  add_resume_flag(line, settings);
  const CLI::App& published = add_published_flags(line, computed, argc, argv);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (published.parsed()) {
    return run_on_cluster([&] {
      settle(computed);
      compute(computed);
    });
  }
  if (const int code = check_preset(line, settings, kPublished)) {
    return code;
  }
  return run_and_report([&] {
    settle_ranks(line, settings);
    return run_benchmark(settings,
                         [&settings](RankContext& context) { run_rank(context, settings); });
  });
}
