#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "measuring/benchmark.h"
#include "measuring/command_line.h"
#include "measuring/on_cluster.h"
#include "measuring/workload.h"

namespace ddp {

// For programs with parts that run on some of the ranks only, while the others wait.

/// How long a rank waits for others while they measure without it.
constexpr std::chrono::hours kPatience{6};

/// The first `ranks` of all ranks as a group of their own, with the same backend as `all`. `name`
/// must be unique among the groups of this run. Collective among them; null on the other ranks.
ProcessGroupPtr group_of_first_ranks(int ranks, const std::string& name, const LinkLimit& link,
                                     const RankContext& context, const DeviceContext& all);

constexpr const char* kSuiteProgram = "ddp_suite";
/// What DDP is here: the student's, and libtorch's.
inline const std::vector<std::string> kSuiteVariants = {"bucketed", "Reducer"};

/// A model of the suite.
struct SuiteModel {
  const char* name;
  std::int64_t parameters;
  int weight;       // relative duration of an iteration, roughly
  int quick_steps;  // measured iterations of the preset quick
};

/// The suite's command line.
struct SuiteSettings : BenchmarkOptions {
  Workload workload = {.model = ""};  // all of them, one after another
  ClusterFlags cluster = {};
  std::vector<std::int64_t> bucket_sizes = {25};  // MB
  std::string variant = "bucketed";               // the one called DDP in `json`
  std::string json = {};                          // empty: not written

  /// The models to be measured.
  std::vector<SuiteModel> models() const;

  /// Measured iterations of a model.
  int steps_of(const SuiteModel& model) const {
    return workload.size.steps > 0 ? workload.size.steps : model.quick_steps;
  }

  /// The bucket sizes as a result stores them.
  Parameters sizes_as_parameters() const;

  /// Where the JSON for a bucket size goes. With several sizes each has its own file: suite.json
  /// becomes suite.25MB.json.
  std::filesystem::path json_of(std::int64_t bucket_size) const;
};

/// A round of the suite: its first `ranks` ranks train, the others wait.
struct SuiteRound {
  std::string name;  // "no ddp", "1M/2G": on one machine, with two of its GPUs
  int ranks = 1;
  bool uses_ddp = true;  // false: one rank without DDP
};

/// "no ddp"; on one machine 1, 2, 4, 8 ... ranks and all that it has; then one more whole machine
/// at a time; finally all ranks. `local_ranks` has each rank's number on its machine.
std::vector<SuiteRound> plan_suite_rounds(const std::vector<int>& local_ranks);

/// Each rank's number on its machine. Collective.
std::vector<int> gather_local_ranks(const RankContext& context,
                                    const DeviceContext& device_context);

/// How many ranks are started here without a launcher. On GPUs: as many as there are. On the CPU:
/// 2, 4 or 8, if each rank has a core, and `bytes_of_rank` of memory.
int default_suite_ranks(const std::string& device, double bytes_of_rank);

/// The version of CUDA in use on `device`, such as "13.0"; empty for the CPU.
std::string cuda_version(const at::Device& device);

// The output of PyTorch's benchmark of DistributedDataParallel (benchmarks/distributed/ddp), in the
// same form.

/// The facts in a report about the whole run.
struct SuiteHeader {
  std::string cuda_version;  // empty: none
  std::string backend;
  std::string device;
  std::vector<std::int64_t> bucket_sizes;  // MB
};

/// The rounds of one model. `seconds` holds all iterations of the first rank, then of the next ...
struct SuiteRows {
  struct Round {
    std::string name;
    std::int64_t ranks = 1;
    std::vector<double> seconds;
  };
  std::string model;
  std::vector<Round> rounds;  // "no ddp" first
};

/// The rounds with the variant that is called DDP, with one bucket size in MB, and those without DDP,
/// model by model, in the order of `result`.
std::vector<SuiteRows> select_rows(const Result& result, const std::string& variant,
                                   std::int64_t bucket_size);

/// On rank 0, with the topology of its machine: what `nvidia-smi topo -m` says if that works, else what
/// lscpu says of cores, caches and NUMA nodes. If another machine's differs, rank 0 prints that to
/// stderr. Collective.
void print_header(const SuiteHeader& header, const RankContext& context);

/// Percentiles of sec/iter over the samples of all ranks together, and ex/sec of a rank, one line
/// per round. `name` follows the model's in the title.
void print_rows(const SuiteRows& rows, std::int64_t batch_size, const std::string& name);

/// The file that the suite's flag --json writes and PyTorch's diff.py reads. Throws
/// std::runtime_error as write_whole_file() does.
void write_suite_json(const std::filesystem::path& file, const SuiteHeader& header,
                      std::int64_t bucket_size, const std::vector<SuiteRows>& models,
                      std::int64_t batch_size);

/// All rounds, on real ranks; saves the result, complete on rank 0. `all` has all ranks, `header` is
/// printed first. Collective. Throws c10::Error if a model does not have the published number of
/// parameters, or stage 03's gradients differ from its baseline's.
Result measure_suite(const SuiteSettings& settings, const SuiteHeader& header,
                     const RankContext& context, const DeviceContext& all);

/// ddp_suite at its published scale, in virtual time: the same series, of one value each, since all
/// ranks and iterations take the same time. Throws c10::ValueError for flags and calibrations that do
/// not fit, c10::NotImplementedError if stage 03 is not written.
Result run_suite_at_published_scale(const SuiteSettings& settings);

}  // namespace ddp
