// Times, and memory, on clusters of any size that are simulated in this process: see
// ddp/cluster/cluster.h. The stages' code really runs; time is virtual, the same in every run.
#include "experiments/cluster/cluster.h"

#include <algorithm>

#include "measuring/command_line.h"

namespace ddp {
namespace {

// A function's static, so that it is there before the first registration.
std::vector<ClusterStudy>& registry() {
  static std::vector<ClusterStudy> studies;
  return studies;
}

}  // namespace

bool register_study(ClusterStudy study) {
  registry().push_back(std::move(study));
  return true;
}

void add_study_flags(CLI::App& line, BenchmarkOptions& options, int argc, char** argv) {
  add_computing_flags(line, options, argc, argv);
  add_choice(line, "--preset", options.preset, "How much is computed", {"quick", "full", "paper"});
}

PublishedHardware ScalingSettings::hardware() const {
  const double times = half ? 2 : 1;
  PublishedHardware hardware = {.pace = {.forward_efficiency = efficiency,
                                         .backward_efficiency = efficiency,
                                         .memory_efficiency = times * efficiency}};
  apply(cluster, hardware);
  hardware.topology.inside.beta_ns_per_byte /= times;
  hardware.topology.between.beta_ns_per_byte /= times;
  hardware.copy_bytes_per_second = times * hardware.gpu.bytes_per_second;
  hardware.slowdown_beside_communication = slowdown_by_nvlink(hardware.gpu);
  return hardware;
}

Parameters ScalingSettings::parameters() const {
  return joined({{"batch_size", sequences.batch},
                 {"sequence_length", sequences.length},
                 {"efficiency", efficiency},
                 {"link", cluster.link},
                 {"link_between", cluster.between}},
                describe(hardware()));
}

void add_flags(CLI::App& line, ScalingSettings& settings, int argc, char** argv) {
  add_study_flags(line, settings, argc, argv);
  add_machine_flags(line, settings.cluster);
  add_shape_flag(line, settings.cluster);
  add_number(line, "--batch-size", settings.sequences.batch, "Sequences of each GPU");
  add_number(line, "--sequence-length", settings.sequences.length, "Tokens of a sequence");
  line.add_option("--efficiency", settings.efficiency,
                  "The part of the GPU's peak that computing reaches")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

}  // namespace ddp

int ddp_main(int argc, char** argv) {
  CLI::App line("What training takes on clusters of any size, which are simulated");
  line.require_subcommand(1);
  std::ranges::sort(ddp::registry(), {}, &ddp::ClusterStudy::name);
  std::function<void()> run;
  for (const ddp::ClusterStudy& study : ddp::registry()) {
    CLI::App* subcommand = line.add_subcommand(study.name, study.what);
    subcommand->callback(
        [&run, study_run = study.add(*subcommand, argc, argv)] { run = study_run; });
  }
  if (const auto code = ddp::parse(line, argc, argv)) {
    return *code;
  }
  return ddp::run_on_cluster(run);
}
