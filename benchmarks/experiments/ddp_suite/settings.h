#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/ddp_suite/first_ranks.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/workload.h"

namespace ddp {

constexpr const char* kSuiteProgram = "ddp_suite";

/// A model of the suite.
struct SuiteModel {
  const char* name;
  std::int64_t parameters;
  int weight;       // how long an iteration takes beside the others', roughly
  int quick_steps;  // measured iterations of the preset quick
};

/// What the suite's command line says.
struct SuiteSettings : BenchmarkOptions {
  Workload workload = {.model = ""};  // all of them, one after the other
  Link link = {};
  std::vector<std::int64_t> bucket_sizes = {25};  // MB
  std::string variant = "bucketed";               // that `json` calls DDP
  std::string json = {};                          // empty: none is written
  // Of a process that is one rank of a job, as each process of the published program is.
  int rank = 0;
  std::string master_addr = {};
  int master_port = 0;

  /// Those to be measured.
  std::vector<SuiteModel> models() const;

  /// Measured iterations of a model.
  int steps_of(const SuiteModel& model) const {
    return workload.size.steps > 0 ? workload.size.steps : model.quick_steps;
  }

  /// Where the JSON of a bucket size goes. With several each has a file of its own: suite.json
  /// becomes suite.25MB.json.
  std::filesystem::path json_of(std::int64_t bucket_size) const;
};

/// The flags that the published program has, too: --model, --distributed-backend, --bucket-size,
/// --rank, --master-addr, --master-port and --json, besides those of all benchmarks; then
/// --variant, and those of Workload.
void add_flags(CommandLine& line, SuiteSettings& settings, int argc, char** argv);

/// To be called when the command line has been read: what one flag says of another, and what no
/// flag says: the number of ranks, and where the JSON of several bucket sizes goes. --rank,
/// --master-addr and --master-port go into the environment, where launch() finds them. Throws
/// c10::ValueError for flags that contradict each other.
void settle(const CommandLine& line, SuiteSettings& settings);

/// Throws std::runtime_error, which names file and flag, if result or JSON cannot be written: it is
/// better said before hours of measuring than after. Other processes than rank 0's write none.
void check_files(const SuiteSettings& settings);

}  // namespace ddp
