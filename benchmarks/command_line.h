#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "ddp/benchmark.h"

namespace ddp {

/// Adds the flags that all benchmarks share, and remembers the command line.
inline void add_flags(CLI::App& app, BenchmarkOptions& options, int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    options.command_line += (i == 0 ? "" : " ") + std::string(argv[i]);
  }
  app.add_option("--impl", options.implementation, "Whose code is measured")
      ->check(CLI::IsMember({"assignments", "solutions"}))
      ->capture_default_str();
  app.add_option("--preset", options.preset, "How much is measured; single flags go before it")
      ->check(CLI::IsMember({"quick", "full", "paper"}))
      ->capture_default_str();
  app.add_option("--device", options.device, "Where the tensors are")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--world-size", options.world_size,
                 "Number of ranks; that of torchrun, mpirun or srun goes before it")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  app.add_option("--rate-gbit", options.rate_gbit, "Limits the link, in Gbit/s; 0: as it is")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of weights and data")->capture_default_str();
  app.add_option("--output", options.output,
                 "Result file; default: figures/data/<program>.<impl>.<preset>.json");
  app.add_option("--trace", options.trace,
                 "Also writes what each rank did and when, a Chrome trace for ui.perfetto.dev");
}

}  // namespace ddp
