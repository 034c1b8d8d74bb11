#include "measuring/on_cluster.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ddp/cluster/meta_memory.h"
#include "ddp/ranks/stage_library.h"
#include "measuring/command_line.h"
#include "models/profiles/hardware.h"

namespace ddp {
namespace {

// Two ranks and two layers: enough for every variant to do all that it does.
void try_step(const std::string& variant) {
  cluster::Cluster cluster(
      {.world_size = 2, .device = {.name = "any", .flops_per_second = 1, .bytes_per_second = 1}});
  cluster::TimedModel model(cluster, {{.parameters = {cluster::make_parameter({2, 2})}},
                                      {.parameters = {cluster::make_parameter({2})}}});
  simulate_step(variant, cluster, model);
}

std::string problem_of(const std::string& variant, const std::string& implementation) {
  try {
    load_stage_library(stage_library(implementation, stage_of(variant)));
    try_step(variant);
    return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

class CountedAdamW : public torch::optim::AdamW {
 public:
  using AdamW::AdamW;
  at::Tensor step(LossClosure closure = nullptr) override {
    const cluster::MemoryScope scope(cluster::MemoryKind::kOptimizer, "update");
    return AdamW::step(std::move(closure));
  }
};

// "layers.12" of "layers.12.attn.q_proj".
std::string unit_of(const std::string& layer) {
  const std::string prefix = "layers.";
  return layer.starts_with(prefix) ? layer.substr(0, layer.find('.', prefix.size())) : "";
}

}  // namespace

std::vector<ModelUnit> units_of(const cluster::TimedModel& model) {
  const std::vector<cluster::TimedLayer>& layers = model.layers();
  std::vector<ModelUnit> units;
  for (std::size_t first = 0, last = 0; first < layers.size(); first = last) {
    ModelUnit unit;
    for (; last < layers.size() && unit_of(layers[last].name) == unit_of(layers[first].name);
         ++last) {
      unit.parameters.insert(unit.parameters.end(), layers[last].parameters.begin(),
                             layers[last].parameters.end());
    }
    unit.function = [&model, first, last](const at::Tensor& x, const std::vector<at::Tensor>& own) {
      const at::Tensor y = model.forward(first, last, x, own);
      return y.view_as(y);  // a hook on it comes before the last layer's backward
    };
    units.push_back(std::move(unit));
  }
  return units;
}

cluster::StepTimes simulate_step(const std::string& variant, cluster::Cluster& cluster,
                                 cluster::TimedModel& model, VariantOptions options,
                                 const std::function<void()>& at_its_end) {
  options.rebuilt_from_the_start = true;
  if (options.units.empty()) {
    options.units = units_of(model);
  }
  std::unique_ptr<Variant> made;
  cluster.run([&] { made = make_variant(variant, model.parameters(), cluster.group(), options); });
  const auto by_units = [&](const at::Tensor& x) { return through(options.units, x); };
  const cluster::StepParts parts = {
      .before_forward = [&] { made->before_forward(); },
      .forward = [&](const at::Tensor& x) { return made->forward(by_units, x); },
      .before_backward = [&] { made->before_backward(); },
      .finish = [&] { made->finish(); }};
  model.step(parts);
  const cluster::StepTimes times = model.step(parts);
  if (at_its_end) {
    at_its_end();
  }
  return times;
}

std::unique_ptr<torch::optim::Optimizer> counted_adamw(std::vector<at::Tensor> parameters) {
  return std::make_unique<CountedAdamW>(std::move(parameters));
}

std::vector<std::string> variants_on_cluster(const std::vector<std::string>& names,
                                             const std::string& implementation) {
  return keep_usable(names, implementation, /*tells=*/true,
                     [&](const std::string& name) { return problem_of(name, implementation); });
}

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

void add_machine_flags(CLI::App& line, ClusterFlags& flags) {
  const auto number = [&](const char* flag, auto& value, const char* what) {
    line.add_option(flag, value, what)->check(CLI::Range(1, 1 << 20));
  };
  const auto positive = [&](const char* flag, double& value, const char* what) {
    line.add_option(flag, value, what)->check(CLI::PositiveNumber);
  };
  number("--gpus", flags.gpus, "How many in total");
  number("--gpus-per-node", flags.gpus_per_node, "In a machine");
  add_choice(line, "--gpu", flags.gpu, "Which GPUs", known_gpus());
  add_choice(line, "--precision", flags.precision,
             "Of matrix products; default: tf32 where there is", known_precisions());
  add_choice(line, "--link", flags.link, "What connects GPUs of a machine", known_links());
  add_choice(line, "--link-between", flags.between, "What connects machines", known_links());
  positive("--link-gb-per-s", flags.link_gb_per_s,
           "What a link in a machine moves, in 10^9 bytes, as measured: nccl-tests' busbw");
  positive("--between-gb-per-s", flags.between_gb_per_s, "The same between machines");
  positive("--link-latency-us", flags.link_latency_us,
           "Of each all-reduce, beyond what NCCL's tables say");
}

CLI::App& add_published(CLI::App& line, BenchmarkOptions& options, ClusterFlags& flags, int argc,
                        char** argv) {
  CLI::App& published = *line.add_subcommand(
      kPublishedPreset,
      "The same at the published scale, computed with the stage's code on a simulated cluster: "
      "seconds, without a GPU");
  options.preset = kPublishedPreset;
  add_computing_flags(published, options, argc, argv);
  add_machine_flags(published, flags);
  published.add_option("--calibration", flags.calibration, "The file with the fitted constants")
      ->default_str("figures/reference/calibration.json");
  return published;
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

void add_shape_flag(CLI::App& line, ClusterFlags& flags) {
  line.add_option("--shape", flags.shape, "d_model,d_ff,layers,heads of another transformer")
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
