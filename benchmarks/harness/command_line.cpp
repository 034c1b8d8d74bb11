#include "harness/command_line.h"

namespace ddp {

std::optional<int> parse(CLI::App& line, int argc, char** argv) {
  for (CLI::Option* option : line.get_options()) {
    if (option->get_items_expected_max() > 1) {
      option->delimiter(',');
    }
  }
  try {
    line.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return line.exit(error);
  }
  return std::nullopt;
}

int refuse(const CLI::App& line, const std::string& mistake) {
  return line.exit(CLI::ValidationError(mistake));
}

void add_flags(CLI::App& line, LinkLimit& limit) {
  line.add_option("--rate-gbit", limit.rate_gbit, "Limits the link, in Gbit/s; 0: as it is")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  line.add_option("--latency-us", limit.latency_us,
                  "Slows each message of the link down, by microseconds; 0: as it is")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void add_flags(CLI::App& line, BenchmarkOptions& options, int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    options.command_line += (i == 0 ? "" : " ") + std::string(argv[i]);
  }
  line.add_option("--impl", options.implementation, "Whose code is measured")
      ->check(CLI::IsMember({"assignments", "solutions"}))
      ->capture_default_str();
  line.add_option("--preset", options.preset, "How much is measured; single flags go before it")
      ->check(CLI::IsMember({"quick", "full", "paper"}))
      ->capture_default_str();
  line.add_option("--device", options.device, "Where the tensors are")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  line.add_option(
          "--backend", options.backend,
          "What moves tensors; default: nccl where each rank has a GPU, else gloo. shm: shared "
          "memory, of ranks on one machine")
      ->check(CLI::IsMember({kGlooBackend, kNcclBackend, kShmBackend}));
  line.add_option("--world-size", options.world_size,
                  "Number of ranks; torchrun, mpirun or srun overrides it")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  add_flags(line, static_cast<LinkLimit&>(options));
  line.add_option("--seed", options.seed, "Of weights and data")->capture_default_str();
  line.add_option("--output", options.output,
                  "Result file; default: figures/data/<program>.<impl>.<preset>.json");
  line.add_option("--trace", options.trace,
                  "Also writes what each rank did and when, a Chrome trace for ui.perfetto.dev");
}

}  // namespace ddp
