#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/ddp_suite/first_ranks.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/published_cluster.h"
#include "harness/workload.h"

namespace ddp {

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
  Link link = {};
  ClusterFlags cluster = {};
  std::vector<std::int64_t> bucket_sizes = {25};  // MB
  std::string variant = "bucketed";               // the one called DDP in `json`
  std::string json = {};                          // empty: not written
  // For a process that is one rank of a job, as in the published program.
  int rank = 0;
  std::string master_addr = {};
  int master_port = 0;

  /// The models to be measured.
  std::vector<SuiteModel> models() const;

  /// Measured iterations of a model.
  int steps_of(const SuiteModel& model) const {
    return workload.size.steps > 0 ? workload.size.steps : model.quick_steps;
  }

  /// Where the JSON for a bucket size goes. With several sizes each has its own file: suite.json
  /// becomes suite.25MB.json.
  std::filesystem::path json_of(std::int64_t bucket_size) const;
};

/// The flags that the published program also has: --model, --distributed-backend, --bucket-size,
/// --rank, --master-addr, --master-port and --json, in addition to those of all benchmarks; then
/// --variant, and those of Workload.
void add_flags(CLI::App& line, SuiteSettings& settings, int argc, char** argv);

/// Call it after the command line has been parsed. Sets what follows from other flags, and what no
/// flag sets: the number of ranks, and where the JSON of several bucket sizes goes. --rank,
/// --master-addr and --master-port go into the environment, where launch() finds them. Throws
/// c10::ValueError for flags that contradict each other.
void settle(const CLI::App& line, SuiteSettings& settings);

/// Throws std::runtime_error, which names file and flag, if the result or JSON cannot be written:
/// before hours of measuring rather than after. Processes other than rank 0 write none.
void check_files(const SuiteSettings& settings);

}  // namespace ddp
