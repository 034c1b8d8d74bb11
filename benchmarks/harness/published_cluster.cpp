#include "harness/published_cluster.h"

#include <c10/util/Exception.h>

#include <cstdio>

#include "harness/cluster_step.h"
#include "models/profiles/hardware.h"

namespace ddp {
namespace {

std::string given_ones(const CommandLine& line, const std::vector<std::string>& flags) {
  std::string text;
  for (const std::string& flag : flags) {
    if (line.given(flag)) {
      text += (text.empty() ? "" : ", ") + flag;
    }
  }
  return text;
}

}  // namespace

void add_flags(CommandLine& line, ClusterFlags& flags, BenchmarkOptions& options) {
  line.remove("--preset");
  line.add("--preset", options.preset, "How much is measured; single flags go before it")
      .one_of({"quick", "full", "paper", kPublishedPreset})
      .show_default();
  const std::string of_cluster = "With --preset published: ";
  line.add("--gpus", flags.gpus, of_cluster + "how many in total; default: as published")
      .in_range(1, 1 << 20);
  line.add("--gpus-per-node", flags.gpus_per_node,
           of_cluster + "in a machine; default: as published")
      .in_range(1, 1 << 20);
  line.add("--gpu", flags.gpu, of_cluster + "which; default: as published").one_of(known_gpus());
  line.add("--link", flags.link, of_cluster + "what connects GPUs of a machine; default: as fitted")
      .one_of(known_links());
  line.add("--link-between", flags.between,
           of_cluster + "what connects machines; default: as fitted")
      .one_of(known_links());
  line.add("--calibration", flags.calibration, of_cluster + "the file with the fitted constants")
      .show_default("figures/reference/calibration.json");
}

std::string misplaced_flags(const CommandLine& line, const BenchmarkOptions& options,
                            const std::vector<std::string>& measuring) {
  if (options.preset != kPublishedPreset) {
    const std::string wrong = given_ones(
        line, {"--gpus", "--gpus-per-node", "--gpu", "--link", "--link-between", "--calibration"});
    return wrong.empty() ? "" : wrong + ": only with --preset published";
  }
  std::vector<std::string> idle = {"--device",     "--world-size", "--rate-gbit",
                                   "--latency-us", "--seed",       "--resume"};
  idle.insert(idle.end(), measuring.begin(), measuring.end());
  const std::string wrong = given_ones(line, idle);
  return wrong.empty() ? ""
                       : "--preset published computes times and measures none: leave out " + wrong;
}

Calibration fitted_for(const ClusterFlags& flags, const std::string& experiment) {
  const std::filesystem::path given = flags.calibration;
  return {given.empty() ? default_calibration() : given, experiment};
}

std::int64_t single_world(const ClusterFlags& flags, std::int64_t published) {
  TORCH_CHECK_VALUE(flags.gpus.size() <= 1, "--gpus: this program runs one cluster at a time, not ",
                    flags.gpus.size(), "; give one number");
  return flags.gpus.empty() ? published : flags.gpus.front();
}

void apply(const ClusterFlags& flags, PublishedHardware& hardware) {
  if (!flags.gpu.empty()) {
    hardware.gpu = known_gpu(flags.gpu);
  }
  if (flags.gpus_per_node > 0) {
    hardware.topology.gpus_per_node = flags.gpus_per_node;
  }
  if (!flags.link.empty()) {
    hardware.topology.inside = known_link(flags.link);
  }
  if (!flags.between.empty()) {
    hardware.topology.between = known_link(flags.between);
  }
}

cluster::StepTimes simulate_step(const std::string& variant, const ProfiledModel& model,
                                 const PublishedHardware& hardware, std::int64_t gpus,
                                 const VariantOptions& options) {
  cluster::Device device = hardware.gpu;
  if (hardware.copy_bytes_per_second > 0) {
    device.bytes_per_second = hardware.copy_bytes_per_second;
  }
  cluster::Cluster cluster(
      {.world_size = gpus,
       .device = device,
       .topology = hardware.topology,
       .slowdown_beside_communication = hardware.slowdown_beside_communication});
  cluster::TimedModel timed(cluster, model.timed_layers(hardware.gpu, hardware.pace),
                            tensors_of(model.named_parameters()));
  return simulate_step(variant, cluster, timed, options);
}

int run_on_cluster(const std::function<void()>& body) {
  return run_and_report([&] {
    try {
      body();
      return 0;
    } catch (const c10::NotImplementedError& error) {
      std::fprintf(stderr, "%s\n", error.msg().c_str());
      return kUnfinished;
    }
  });
}

Run to_cluster_run(const BenchmarkOptions& options, const std::string& program, std::int64_t gpus) {
  return {.program = program,
          .implementation = options.implementation,
          .preset = options.preset,
          .backend = "simulated cluster",
          .device = "simulated",
          .world_size = static_cast<int>(gpus),
          .seed = options.seed,
          .command = options.command_line};
}

Parameters describe(const PublishedHardware& hardware) {
  Parameters parameters = {
      {"gpu", hardware.gpu.name},
      {"gpu_source", hardware.gpu.source},
      {"gpus_per_node", hardware.topology.gpus_per_node},
      {"slowdown_beside_communication", hardware.slowdown_beside_communication}};
  const auto add = [&](const char* name, const cluster::Link& link) {
    if (link.beta_ns_per_byte > 0) {  // else there is no such link
      parameters.emplace_back(name, 1 / link.beta_ns_per_byte);
    }
  };
  add("link_gb_per_s", hardware.topology.inside);
  add("link_between_gb_per_s", hardware.topology.between);
  return parameters;
}

}  // namespace ddp
