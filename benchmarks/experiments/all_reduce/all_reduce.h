#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "baselines/all_reduces.h"
#include "ddp/network_model.h"
#include "measuring/benchmark.h"
#include "measuring/command_line.h"

namespace ddp {

// What an experiment about all-reduces, stage 05's ring and others, consists of. Each is an entry: a
// file beside this one, which says what it repeats and where that was published.

/// The command line of an experiment, with its defaults: each has flags for some of it.
struct AllReduceSettings : BenchmarkOptions {
  std::vector<int> worlds;               // one after the other
  std::vector<int> on_cluster = {};      // the same, simulated by one rank
  std::vector<std::int64_t> sizes = {};  // bytes of a rank's tensor
  std::int64_t bytes = 0;                // of a size's tensors on all ranks, where that limits
  int repetitions = 0, least = 0, most = 0, warmup = 0;
  NetworkModel network = {.alpha_ns = 10'000, .beta_ns_per_byte = 1.0};
};

/// From `smallest` to `largest`, each `factor` times the one before.
std::vector<std::int64_t> sizes_between(std::int64_t smallest, std::int64_t largest, int factor);

/// Runs `body` in ranks of their own, with stage 05's library loaded: see run_benchmark(). Ranks of a
/// run after the first continue the rows that are saved. Returns the exit code.
int run_ranks(AllReduceSettings& settings, int world, const RankFunction& body);

/// An entry of the table.
struct AllReduceExperiment {
  std::string name;   // of its result, too
  std::string about;  // a line for --help, with the source
  PresetsInWords presets;
  int gpus;  // of the preset "paper"; 0: it needs none
  AllReduceSettings (*defaults)(const std::string& preset);
  void (*add_flags)(CLI::App& line, AllReduceSettings& settings);
  /// Measures and saves; the exit code.
  int (*run)(AllReduceSettings settings);
};

AllReduceExperiment collectives();
AllReduceExperiment ring_all_reduce_table();
AllReduceExperiment all_reduce_algorithms();

}  // namespace ddp
