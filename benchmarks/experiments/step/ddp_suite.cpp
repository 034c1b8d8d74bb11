// PyTorch's suite for DistributedDataParallel: how long a training iteration of four ResNets takes
// on one rank without DDP, and on more and more ranks with it.
//
// Source: benchmarks/distributed/ddp in PyTorch, with its procedure and its JSON
// (figures/reference/ddp_suite.csv has the published numbers).
//
// Here DDP is the student's stage 03 and libtorch's c10d::Reducer, with the same bucket size. They
// are interleaved; so are several bucket sizes. Ranks that are not part of a round wait. Percentiles
// are over the times of all ranks together.
#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "ddp/backends/cuda.h"
#include "ddp/launching/environment.h"
#include "ddp/meters/whole_file.h"
#include "experiments/step/step.h"
#include "models/profiles/hardware.h"
#include "models/resnet.h"

namespace ddp {
namespace {

constexpr const char* kSuite = "ddp_suite";
const std::vector<std::string> kWithDdp = {"bucketed", kReducer};

struct SuiteModel {
  const char* name;
  std::int64_t parameters;
  int quick_steps;  // of the preset quick
};
constexpr SuiteModel kModels[] = {{"resnet50", 25'557'032, 3},
                                  {"resnet101", 44'549'160, 3},
                                  {"resnext50_32x4d", 25'028'904, 3},
                                  {"resnext101_32x8d", 88'791'336, 2}};
constexpr int kQuickStepsOfSizes = 8;

std::vector<SuiteModel> suite_models(const StepSettings& settings) {
  std::vector<SuiteModel> chosen;
  for (const SuiteModel& model : kModels) {
    if (settings.workload.model.empty() || settings.workload.model == model.name) {
      chosen.push_back(model);
    }
  }
  return chosen;
}

int steps_of(const StepSettings& settings, const SuiteModel& model) {
  return settings.workload.size.steps > 0 ? settings.workload.size.steps : model.quick_steps;
}

constexpr double kSuiteRate = 0.001, kMomentum = 0.9, kWeightDecay = 1e-4;

// As PyTorch's torch.optim.SGD(fused=True), by the same function of libtorch: one pass over
// parameters, gradients and momentum.
std::function<void()> momentum_sgd(std::vector<at::Tensor> parameters) {
  return [parameters = std::move(parameters), momentum = std::vector<at::Tensor>()]() mutable {
    const bool is_first = momentum.empty();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters) {
      gradients.push_back(parameter.grad());
      if (is_first) {
        momentum.push_back(at::empty_like(parameter));
      }
    }
    at::_fused_sgd_(parameters, gradients, momentum, kWeightDecay, kMomentum, kSuiteRate,
                    /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false, is_first);
  };
}

StepSettings suite_defaults(const std::string& preset) {
  StepSettings settings;
  settings.variants = kWithDdp;
  settings.timed = {{"", Part::kForward, Part::kUpdate, /*together=*/true}};
  settings.times_of = TimesOf::kAll;
  settings.sizes = {25};
  settings.trainer.update = momentum_sgd;
  settings.workload.size = {.batch = 32, .image = 224, .steps = 10, .warmup = 5};
  if (preset == kPublishedPreset) {
    settings.sizes = {25, 1};
    settings.cluster.gpus = {1, 2, 4, 8, 16, 32, 64};
    settings.workload.size.warmup = 0;
  } else if (preset.empty() || preset == "quick") {
    settings.workload.size = {.batch = 4, .image = 32, .steps = 0, .warmup = 1};
  }
  return settings;
}

// Among them those of the published program: --model, --distributed-backend, --bucket-size, --json.
void add_suite_flags(CLI::App& line, StepSettings& settings) {
  Size& size = settings.workload.size;
  if (settings.on_cluster()) {
    add_choice(line, "--model", settings.workload.model, "", resnet_names());
    add_number(line, "--batch-size", size.batch, "Samples of each GPU");
    add_number(line, "--image-size", size.image, "Pixels of an image's side", 32);
  } else {
    line.remove_option(line.get_option("--trace"));    // use the program timeline instead
    line.remove_option(line.get_option("--backend"));  // PyTorch's name for it is below
    add_flags(line, settings.workload, resnet_names());
    line.get_option("--steps")->default_str("3; 2 of resnext101_32x8d");
    add_choice(line, "--distributed-backend", settings.backend,
               "What moves gradients; default: what fits --device. nccl implies --device cuda",
               {kGlooBackend, kNcclBackend});
    line.get_option("--world-size")
        ->default_str("GPUs: all that are here; CPU: 2, 4 or 8, by cores and memory");
  }
  line.get_option("--model")->description("What is trained; default: each of them");
  add_number(line, "--bucket-size", settings.sizes,
             "Of DDP, in MB (2^20 bytes); several are interleaved in one run");
  line.add_option(
      "--json", settings.json,
      "Also writes the measurements in the form that tools/report/ddp_diff.py and PyTorch's "
      "diff.py read. Several bucket sizes have a file each, beside --output if this flag "
      "is not given: suite.json becomes suite.25MB.json");
  add_choice(line, "--variant", settings.json_variant, "What --json calls DDP; both are measured",
             kWithDdp);
}

// Where the JSON for a bucket size goes.
std::filesystem::path json_of(const StepSettings& settings, std::int64_t bucket_size) {
  std::filesystem::path file = settings.json;
  if (settings.sizes.size() > 1) {
    file.replace_extension(std::to_string(bucket_size) + "MB" + file.extension().string());
  }
  return file;
}

// As many ranks as there are GPUs; on the CPU 2, 4 or 8, if each has a core, and memory for two
// replicas of the largest model: weights, momentum, buckets, and temporary gradients.
int default_ranks(const std::string& device) {
  if (device == "cuda") {
    return std::max(visible_gpus(), 1);
  }
  const double bytes_of_rank = 4.0 * 2 * sizeof(float) * std::end(kModels)[-1].parameters;
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  int ranks = 2;
  while (ranks < 8 && 2 * ranks <= static_cast<int>(std::thread::hardware_concurrency()) &&
         2 * ranks * bytes_of_rank <= memory) {
    ranks *= 2;
  }
  return ranks;
}

// A mistake in the flags of real ranks.
std::string settle_suite_ranks(const CLI::App& line, StepSettings& settings) {
  if (settings.backend == kNcclBackend) {
    if (line.count("--device") > 0 && settings.device != "cuda") {
      return "--distributed-backend nccl moves a GPU's tensors: leave out --device cpu, or choose "
             "gloo";
    }
    settings.device = "cuda";
  }
  Size& size = settings.workload.size;
  if (size.batch == 1 && size.image <= 32) {
    return "--batch-size 1 of 32x32 images leaves BatchNorm one value of each channel, which has "
           "no "
           "variance: give it two images, or larger ones";
  }
  if (settings.preset == "quick" && settings.sizes.size() > 1) {
    settings.workload.model =
        settings.workload.model.empty() ? "resnet50" : settings.workload.model;
    size.steps = size.steps > 0 ? size.steps : kQuickStepsOfSizes;
  }
  if (!read_launch_environment() && line.count("--world-size") == 0) {
    settings.world_size = default_ranks(settings.device);
  }
  return "";
}

std::string settle_suite(const CLI::App& line, StepSettings& settings) {
  if (!settings.on_cluster()) {
    if (std::string mistake = settle_suite_ranks(line, settings); !mistake.empty()) {
      return mistake;
    }
  }
  if (settings.sizes.size() > 1 && settings.json.empty()) {
    settings.json = result_path(
        settings,
        {.program = kSuite, .implementation = settings.implementation, .preset = settings.preset});
  }
  // Before hours of measuring rather than after.
  const auto launched = read_launch_environment();
  for (const std::int64_t size : settings.sizes) {
    if (!settings.json.empty() && (!launched || launched->rank == 0)) {
      require_writable(json_of(settings, size), "--json");
    }
  }
  return "";
}

// "2M/8G": machines, and the GPUs of each.
std::string round_name(std::int64_t ranks, const std::vector<int>& local_ranks) {
  const auto end = local_ranks.begin() + ranks;
  return std::to_string(std::count(local_ranks.begin(), end, 0)) + "M/" +
         std::to_string(*std::max_element(local_ranks.begin(), end) + 1) + "G";
}

// How many ranks train. On one machine 1, 2, 4, 8 ... and all that it has; then one more whole
// machine at a time; finally all ranks.
std::vector<std::int64_t> rounds_of(const std::vector<int>& local_ranks) {
  const auto world = static_cast<std::int64_t>(local_ranks.size());
  const std::int64_t machine =
      std::find(local_ranks.begin() + 1, local_ranks.end(), 0) - local_ranks.begin();
  std::set<std::int64_t> rounds = {world};
  for (std::int64_t ranks = 1; ranks < machine; ranks *= 2) {
    rounds.insert(ranks);
  }
  for (std::int64_t ranks = machine; ranks <= world; ranks += machine) {
    rounds.insert(ranks);
  }
  return {rounds.begin(), rounds.end()};
}

// The cluster's.
std::vector<int> simulated_local_ranks(const StepSettings& settings) {
  const std::vector<std::int64_t>& gpus = settings.cluster.gpus;
  const std::int64_t of_machine = settings.cluster.gpus_per_node;
  std::vector<int> local_ranks(std::ranges::max(gpus));
  for (std::size_t i = 0; i < local_ranks.size(); ++i) {
    local_ranks[i] = static_cast<int>(i % (of_machine > 0 ? of_machine : 8));
  }
  return local_ranks;
}

std::vector<Comparison> suite_rows(const StepSettings& settings, const std::vector<int>& found) {
  std::vector<Way> with_ddp;
  for (const std::int64_t size : settings.sizes) {
    for (const std::string& variant : settings.variants) {
      Way way = {variant, settings.trainer, {{"variant", variant}, {"bucket_size", size}}};
      way.options.cap_bytes = size << 20;
      with_ddp.push_back(way);
    }
  }
  const std::vector<int> local_ranks =
      settings.on_cluster() ? simulated_local_ranks(settings) : found;
  const std::vector<std::int64_t> rounds =
      settings.on_cluster() ? settings.cluster.gpus : rounds_of(local_ranks);
  std::vector<Comparison> rows;
  for (const SuiteModel& model : suite_models(settings)) {
    const auto add = [&](const std::string& name, std::int64_t ranks,
                         const std::vector<Way>& ways) {
      Comparison row = {.labels = {{"model", model.name}, {"round", name}, {"ranks", ranks}},
                        .workload = settings.workload,
                        .ways = ways,
                        .ranks = static_cast<int>(ranks)};
      row.workload.model = model.name;
      row.workload.size.steps = steps_of(settings, model);
      rows.push_back(row);
    };
    add("no ddp", 1, {{kComputeOnly, settings.trainer, {{"variant", kComputeOnly}}}});
    for (const std::int64_t ranks : rounds) {
      add(round_name(ranks, local_ranks), ranks, with_ddp);
    }
  }
  return rows;
}

// Of CUDA, such as "13.0"; empty for the CPU.
std::string cuda_version(const std::string& device) {
  if (device != "cuda") {
    return "";
  }
  const long version = at::detail::getCUDAHooks().versionCUDART();  // 13.0 is 13000
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Parameters suite_parameters(const StepSettings& settings, const std::vector<Comparison>&) {
  const Size& size = settings.workload.size;
  Parameters parameters = {{"batch_size", size.batch},
                           {"image_size", size.image},
                           {"warmup", size.warmup},
                           {"rate_gbit", settings.rate_gbit},
                           {"latency_us", settings.latency_us}};
  if (!settings.on_cluster()) {
    parameters = joined(parameters, {{"cuda_version", cuda_version(settings.device)},
                                     {"learning_rate", kSuiteRate},
                                     {"momentum", kMomentum},
                                     {"weight_decay", kWeightDecay}});
    for (const SuiteModel& model : suite_models(settings)) {
      parameters.emplace_back(std::string("parameters of ") + model.name, model.parameters);
      parameters.emplace_back(std::string("steps of ") + model.name, steps_of(settings, model));
    }
  }
  for (std::size_t i = 0; i < settings.sizes.size(); ++i) {
    parameters.emplace_back("bucket_size " + std::to_string(i), settings.sizes[i]);
  }
  return parameters;
}

// At full speed.
double step_ns(const ProfiledModel& model, const cluster::Device& gpu) {
  std::int64_t sum = 0;
  for (const cluster::TimedLayer& layer : model.timed_layers(gpu, {})) {
    sum += layer.forward_ns + layer.backward_ns;
  }
  return static_cast<double>(sum);
}

double suite_update_ns(const ModelProfile& profile, const cluster::Device& gpu) {
  const Work update = optimizer_work(profile, /*states=*/1);  // momentum
  return static_cast<double>(cluster::operator_ns(gpu, 0, static_cast<double>(update.bytes)));
}

// The round without DDP is given: what is predicted is what DDP adds.
PublishedHardware suite_hardware(const StepSettings& settings, const std::string& model) {
  const Calibration fitted = fitted_for(settings.cluster, kSuite);
  const cluster::Device published = known_gpu("V100");
  const ProfiledModel as_published(resnet_profile(model, {.batch = 32, .side = 224}));
  const double compute_ns = 1e9 * fitted.constant("compute_s." + model);
  const double efficiency = step_ns(as_published, published) /
                            (compute_ns - suite_update_ns(as_published.profile(), published));
  PublishedHardware hardware = {
      .gpu = published,
      .topology = {.gpus_per_node = 8,
                   .inside = {.beta_ns_per_byte = 1e9 / fitted.constant("link_bytes_per_second")},
                   .between = known_link("infiniband4x100"),
                   .algorithm = cluster::AllReduce::kNccl,
                   .nccl = {.generation = cluster::NcclMachine::kVolta, .nvlink = true},
                   .overhead_ns = std::llround(1e9 * fitted.constant("all_reduce_overhead_s"))},
      .slowdown_beside_communication = fitted.constant("slowdown"),
      .copy_bytes_per_second = fitted.constant("copy_bytes_per_second"),
      .pace = {.forward_efficiency = efficiency, .backward_efficiency = efficiency}};
  apply(settings.cluster, hardware);
  if (!settings.cluster.gpu.empty()) {
    hardware.slowdown_beside_communication = slowdown_by_nvlink(hardware.gpu);
  }
  return hardware;
}

Simulated simulated_round(const StepSettings& settings, const Comparison& row) {
  const Size& size = row.workload.size;
  const ModelProfile profile =
      resnet_profile(row.workload.model, {.batch = size.batch, .side = size.image});
  const PublishedHardware hardware = suite_hardware(settings, row.workload.model);
  const double update = suite_update_ns(profile, hardware.gpu);
  return {.profile = profile,
          .hardware = hardware,
          .gpus = row.ranks,
          .seconds = [update](const Way&, const cluster::StepTimes& times) -> std::vector<double> {
            return {1e-9 * (static_cast<double>(times.total_ns) + update)};
          }};
}

// The rounds without DDP, and those of one variant with one bucket size, in PyTorch's form.
nlohmann::ordered_json suite_json(const StepSettings& settings, const Result& result,
                                  std::int64_t bucket_size) {
  nlohmann::ordered_json models = nlohmann::ordered_json::array();
  std::string last;
  for (const Series& series : result.series) {
    const auto size = label_of<std::int64_t>(series, "bucket_size");  // none without DDP
    if (size && (*size != bucket_size ||
                 label_of<std::string>(series, "variant") != settings.json_variant)) {
      continue;
    }
    if (const std::string model = *label_of<std::string>(series, "model"); model != last) {
      last = model;
      models.push_back({{"model", model},
                        {"batch_size", settings.workload.size.batch},
                        {"result", nlohmann::ordered_json::array()}});
    }
    std::vector<std::int64_t> ranks(*label_of<std::int64_t>(series, "ranks"));
    std::iota(ranks.begin(), ranks.end(), 0);
    models.back()["result"].push_back({{"ranks", ranks}, {"measurements", series.values}});
  }
  const std::string cuda = cuda_version(settings.on_cluster() ? "" : settings.device);
  return {{"pytorch_version", TORCH_VERSION},
          {"cuda_version", cuda.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(cuda)},
          {"distributed_backend", result.run.backend},
          {"bucket_size", bucket_size},
          {"benchmark_results", models}};
}

void write_suite_json(const StepSettings& settings, const DeviceContext*, Result& result) {
  if (settings.json.empty() || result.series.empty()) {
    return;
  }
  for (const std::int64_t size : settings.sizes) {
    const std::filesystem::path file = json_of(settings, size);
    write_whole_file(file, suite_json(settings, result, size).dump(1) + "\n", "--json");
    std::printf("wrote %s\n", file.c_str());
  }
}

}  // namespace

StepExperiment ddp_suite() {
  return {.name = kSuite,
          .about =
              "Iteration of four ResNets on more and more ranks: PyTorch's "
              "benchmarks/distributed/ddp",
          .presets = {.quick = "the real models; batch 4, 32x32 images, 1 warm-up, 3 measured "
                               "iterations (2 of resnext101_32x8d); several bucket sizes: resnet50 "
                               "alone, 8 iterations",
                      .full = "batch 32, 224x224 images, 5 warm-ups, 10 measured iterations, on "
                              "what is here",
                      .paper = "the same on machines with 8 V100 GPUs each, as published"},
          .published = {.gpus = 8, .model = "V100"},
          .defaults = suite_defaults,
          .add_flags = add_suite_flags,
          .settle = settle_suite,
          .rows = suite_rows,
          .parameters = suite_parameters,
          .simulated = simulated_round,
          .complete = write_suite_json,
          .patience = std::chrono::hours(6)};
}

}  // namespace ddp
