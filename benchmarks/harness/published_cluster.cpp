#include "harness/published_cluster.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/cluster_step.h"
#include "harness/command_line.h"
#include "models/profiles/hardware.h"

namespace ddp {
namespace {

constexpr const char* kAdvice = "; restore it: git checkout -- figures/reference/calibration.json";

std::map<std::string, nlohmann::json> read(const std::filesystem::path& file) {
  std::ifstream stream(file);
  TORCH_CHECK_VALUE(stream, file.string(), ": cannot be read", kAdvice);
  try {
    return nlohmann::json::parse(stream)
        .at("experiments")
        .get<std::map<std::string, nlohmann::json>>();
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK_VALUE(false, file.string(), ": is no calibration (", error.what(), ")", kAdvice);
  }
}

template <typename Value>
std::string listed(const std::map<std::string, Value>& map) {
  std::string names;
  for (const auto& [name, value] : map) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "none" : names;
}

std::string given_ones(const CLI::App& line, const std::vector<std::string>& flags) {
  std::string text;
  for (const std::string& flag : flags) {
    if (line.count(flag) > 0) {
      text += (text.empty() ? "" : ", ") + flag;
    }
  }
  return text;
}

}  // namespace

std::filesystem::path default_calibration() {
  const std::filesystem::path bin = std::filesystem::canonical("/proc/self/exe").parent_path();
  return bin.parent_path().parent_path() / "figures/reference/calibration.json";
}

Calibration::Calibration(const std::filesystem::path& file, const std::string& experiment)
    : origin_(file.string() + ", " + experiment) {
  const auto experiments = read(file);
  TORCH_CHECK_VALUE(experiments.contains(experiment), file.string(), ": has nothing about ",
                    experiment, ", only about: ", listed(experiments), kAdvice);
  try {
    constants_ = experiments.at(experiment).at("constants").get<std::map<std::string, double>>();
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK_VALUE(false, origin_, ": its constants cannot be read (", error.what(), ")",
                      kAdvice);
  }
}

double Calibration::constant(const std::string& name) const {
  const auto found = constants_.find(name);
  TORCH_CHECK_VALUE(found != constants_.end(), origin_, ": lacks the constant \"", name,
                    "\"; there are: ", listed(constants_), kAdvice);
  return found->second;
}

void add_machine_flags(CLI::App& line, ClusterFlags& flags, const std::string& when) {
  add_choice(line, "--gpu", flags.gpu, when + "which GPUs", known_gpus());
  add_choice(line, "--precision", flags.precision,
             when + "of matrix products; default: tf32 where there is", known_precisions());
  add_choice(line, "--link", flags.link, when + "what connects GPUs of a machine", known_links());
  add_choice(line, "--link-between", flags.between, when + "what connects machines", known_links());
  line.add_option(
          "--link-gb-per-s", flags.link_gb_per_s,
          when + "what a link in a machine moves, in 10^9 bytes, as measured: nccl-tests' busbw")
      ->check(CLI::PositiveNumber);
  line.add_option("--between-gb-per-s", flags.between_gb_per_s, when + "the same between machines")
      ->check(CLI::PositiveNumber);
  line.add_option("--link-latency-us", flags.link_latency_us,
                  when + "of each all-reduce, beyond what NCCL's tables say")
      ->check(CLI::PositiveNumber);
}

void add_flags(CLI::App& line, ClusterFlags& flags, BenchmarkOptions& options) {
  line.remove_option(line.get_option("--preset"));
  add_choice(line, "--preset", options.preset, "How much is measured; single flags go before it",
             {"quick", "full", "paper", kPublishedPreset});
  const std::string of_cluster = "With --preset published: ";
  line.add_option("--gpus", flags.gpus, of_cluster + "how many in total; default: as published")
      ->check(CLI::Range(1, 1 << 20));
  line.add_option("--gpus-per-node", flags.gpus_per_node,
                  of_cluster + "in a machine; default: as published")
      ->check(CLI::Range(1, 1 << 20));
  add_machine_flags(line, flags, of_cluster);
  line.add_option("--calibration", flags.calibration,
                  of_cluster + "the file with the fitted constants")
      ->default_str("figures/reference/calibration.json");
}

std::string misplaced_flags(const CLI::App& line, const BenchmarkOptions& options,
                            const std::vector<std::string>& measuring) {
  if (options.preset != kPublishedPreset) {
    const std::string wrong = given_ones(
        line, {"--gpus", "--gpus-per-node", "--gpu", "--precision", "--link", "--link-between",
               "--link-gb-per-s", "--between-gb-per-s", "--link-latency-us", "--calibration"});
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
  cluster::Topology& topology = hardware.topology;
  if (!flags.gpu.empty() || !flags.precision.empty()) {
    hardware.gpu = known_gpu(flags.gpu.empty() ? hardware.gpu.name : flags.gpu,
                             flags.precision.empty() ? "tf32" : flags.precision);
    topology.nccl.generation = generation_of(hardware.gpu.name);
  }
  if (flags.gpus_per_node > 0) {
    topology.gpus_per_node = flags.gpus_per_node;
  }
  if (!flags.link.empty()) {
    topology.inside = known_link(flags.link);
    topology.nccl.nvlink = flags.link.starts_with("nv");
    topology.nccl.nvswitch = flags.link.starts_with("nvswitch");
    topology.algorithm = cluster::AllReduce::kNccl;
  }
  if (!flags.between.empty()) {
    topology.between = known_link(flags.between);
    topology.algorithm = cluster::AllReduce::kNccl;
  }
  if (flags.link_gb_per_s > 0) {
    topology.inside.beta_ns_per_byte = 1 / flags.link_gb_per_s;
  }
  if (flags.between_gb_per_s > 0) {
    topology.between.beta_ns_per_byte = 1 / flags.between_gb_per_s;
  }
  if (flags.link_latency_us >= 0) {
    topology.overhead_ns = std::llround(1e3 * flags.link_latency_us);
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
       .slowdown_beside_communication = hardware.slowdown_beside_communication,
       .kernel_ns_beside_communication = hardware.kernel_ns_beside_communication,
       .slowdown_beside_computing = hardware.slowdown_beside_computing,
       .launch_queue = hardware.launch_queue});
  cluster::TimedModel timed(cluster, model.timed_layers(hardware.gpu, hardware.pace),
                            tensors_of(model.named_parameters()), hardware.pace.host);
  return simulate_step(variant, cluster, timed, options);
}

void remove_measuring_flags(CLI::App& line) {
  for (const char* flag :
       {"--device", "--world-size", "--rate-gbit", "--latency-us", "--seed", "--trace"}) {
    line.remove_option(line.get_option(flag));
  }
}

void add_scaling_flags(CLI::App& line, ClusterFlags& flags, double& efficiency) {
  line.add_option("--efficiency", efficiency, "The part of the GPU's peak that computing reaches")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  line.add_option("--gpus", flags.gpus, "How many in total; default: 1 to 4,096 in powers of two")
      ->check(CLI::Range(1, 1 << 20));
}

void choose_gpus(ClusterFlags& flags) {
  if (flags.gpus.empty()) {
    flags.gpus = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  }
}

void add_shape_flag(CLI::App& line, ClusterFlags& flags, const std::string& when) {
  line.add_option("--shape", flags.shape, when + "d_model,d_ff,layers,heads of another transformer")
      ->check(CLI::Range(1, 1 << 20));
}

TransformerShape shape_of(const ClusterFlags& flags, const std::string& model) {
  if (flags.shape.empty()) {
    return transformer_shape(model);
  }
  TORCH_CHECK_VALUE(flags.shape.size() == 4, "--shape takes d_model,d_ff,layers,heads, not ",
                    flags.shape.size(), " numbers");
  return {.d_model = flags.shape[0],
          .d_ff = flags.shape[1],
          .layers = flags.shape[2],
          .heads = flags.shape[3]};
}

double slowdown_by_nvlink(const cluster::Device& gpu) {
  constexpr double kChannels = 16;
  const auto all = static_cast<double>(gpu.multiprocessors);
  return all / (all - kChannels);
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
  return to_run(options, program, "simulated cluster", "simulated", static_cast<int>(gpus));
}

Parameters describe(const PublishedHardware& hardware) {
  Parameters parameters = {
      {"gpu", hardware.gpu.name},
      {"gpu_source", hardware.gpu.source},
      {"gpus_per_node", hardware.topology.gpus_per_node},
      {"slowdown_beside_communication", hardware.slowdown_beside_communication},
      {"slowdown_beside_computing", hardware.slowdown_beside_computing}};
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
