#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/ddp_suite/topology.h"
#include "harness/result.h"

namespace ddp {

// The output of PyTorch's benchmark of DistributedDataParallel (benchmarks/distributed/ddp), in the
// same form.

/// The facts in a report about the whole run.
struct SuiteHeader {
  std::string cuda_version;  // empty: none
  std::string backend;
  std::string device;
  std::vector<std::int64_t> bucket_sizes;  // MB
};

/// The variant called DDP in a report: one of the measured variants, with one bucket size.
struct SuiteChoice {
  std::string variant;
  std::int64_t bucket_size = 25;  // MB
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

/// The choice's rounds, and those without DDP, model by model, in the order of `result`.
std::vector<SuiteRows> select_rows(const Result& result, const SuiteChoice& choice);

void print_header(const SuiteHeader& header, const Topology& topology);

/// Percentiles of sec/iter over the samples of all ranks together, and ex/sec of a rank, one line
/// per round. `name` follows the model's in the title, unless it is empty.
void print_rows(const SuiteRows& rows, std::int64_t batch_size, const std::string& name);

/// The file that the suite's flag --json writes and PyTorch's diff.py reads. Throws
/// std::runtime_error as write_whole_file() does.
void write_suite_json(const std::filesystem::path& file, const SuiteHeader& header,
                      const std::vector<SuiteRows>& models, std::int64_t batch_size);

}  // namespace ddp
