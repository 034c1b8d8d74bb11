#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>

#include "ddp/meters/whole_file.h"
#include "ddp/ranks/environment.h"
#include "experiments/ddp_suite/suite.h"
#include "harness/command_line.h"
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

constexpr const char* kRank = "--rank";
constexpr const char* kMasterAddr = "--master-addr";
constexpr const char* kMasterPort = "--master-port";

void add_job_flags(CLI::App& line, SuiteSettings& settings) {
  line.add_option(kMasterAddr, settings.master_addr, "Where rank 0 of the job runs");
  line.add_option(kMasterPort, settings.master_port, "A free port there")
      ->check(CLI::Range(1, 65535));
  line.add_option(kRank, settings.rank,
                  "This process is that rank of a job of --world-size processes, to be started one "
                  "by one; default: this process forks all ranks")
      ->check(CLI::Range(0, 1 << 20))
      ->needs(kMasterAddr)
      ->needs(kMasterPort)
      ->needs("--world-size");
  line.get_option("--world-size")
      ->default_str("GPUs: all that are here; CPU: 2, 4 or 8, by cores and memory");
}

// The environment variables are torchrun's.
void export_job(const CLI::App& line, const SuiteSettings& settings) {
  const auto give = [&](const char* flag, const char* variable, const std::string& value) {
    if (line.count(flag) > 0) {
      setenv(variable, value.c_str(), /*overwrite=*/1);
    }
  };
  give(kRank, "RANK", std::to_string(settings.rank));
  if (line.count(kRank) > 0) {
    setenv("WORLD_SIZE", std::to_string(settings.world_size).c_str(), /*overwrite=*/1);
  }
  give(kMasterAddr, "MASTER_ADDR", settings.master_addr);
  give(kMasterPort, "MASTER_PORT", std::to_string(settings.master_port));
}

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

void add_flags(CLI::App& line, SuiteSettings& settings, int argc, char** argv) {
  add_flags(line, static_cast<BenchmarkOptions&>(settings), argc, argv);
  line.remove_option(line.get_option("--trace"));    // use the program timeline instead
  line.remove_option(line.get_option("--backend"));  // PyTorch's name for it is below
  add_flags(line, settings.workload, resnet_names());
  line.get_option("--model")->description("What is trained; default: each of them");
  add_choice(line, "--distributed-backend", settings.backend,
             "What moves gradients; default: what fits --device. nccl implies --device cuda",
             {kGlooBackend, kNcclBackend});
  add_number(line, "--bucket-size", settings.bucket_sizes,
             "Of DDP, in MB (2^20 bytes); several are interleaved in one run");
  line.add_option(
      "--json", settings.json,
      "Also writes the measurements in the form that tools/report/ddp_diff.py and PyTorch's "
      "diff.py read. Several bucket sizes have a file each, beside --output if this flag "
      "is not given: suite.json becomes suite.25MB.json");
  add_choice(line, "--variant", settings.variant, "What --json calls DDP; both are measured",
             kSuiteVariants);
  add_job_flags(line, settings);
}

void settle(const CLI::App& line, SuiteSettings& settings) {
  if (settings.backend == kNcclBackend) {
    TORCH_CHECK_VALUE(line.count("--device") == 0 || settings.device == "cuda",
                      "--distributed-backend nccl moves a GPU's tensors: leave out --device cpu, "
                      "or choose gloo");
    settings.device = "cuda";
  }
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
  const Size& size = settings.workload.size;
  TORCH_CHECK_VALUE(size.batch > 1 || size.image > 32,
                    "--batch-size 1 of 32x32 images leaves BatchNorm one value of each channel, "
                    "which has no variance: give it two images, or larger ones");
  export_job(line, settings);
  const auto launched = read_launch_environment();
  TORCH_CHECK_VALUE(launched || (line.count(kMasterAddr) == 0 && line.count(kMasterPort) == 0),
                    kMasterAddr, " and ", kMasterPort, " belong to a job: give ", kRank,
                    " and --world-size, too");
  if (!launched && line.count("--world-size") == 0) {
    settings.world_size = default_suite_ranks(settings.device, kBytesOfRank);
  }
  for (const std::int64_t bucket_size : settings.bucket_sizes) {
    if (!settings.json.empty() && (!launched || launched->rank == 0)) {
      require_writable(settings.json_of(bucket_size), "--json");
    }
  }
}

}  // namespace ddp
