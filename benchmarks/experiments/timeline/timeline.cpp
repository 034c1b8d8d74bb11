// Stages 01 to 03, or others: what happens within a training step of each variant, compared with
// libtorch's own c10d::Reducer. It replaces the screenshots of a profiler.
//
// With the virtual clock everything follows from the costs given by flags, and is the same in every
// run: computation from the costs of the layers, communication from the alpha-beta model of the
// simulated network. With the real clock the network is Gloo, optionally limited by --rate-gbit.
// With the clock of the cluster a model of any size is trained on simulated GPUs, see
// ddp/cluster/cluster.h.
//
// A step begins on all ranks together and ends when all gradients are averages. The variants are
// interleaved; for each, the step of median length after the warm-up is drawn. All are in one
// Chrome trace, each starting at time zero.
#include "experiments/timeline/timeline.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <cstdio>
#include <filesystem>
#include <map>

#include "ddp/meters/statistics.h"
#include "measuring/command_line.h"
#include "measuring/result.h"
#include "models/profiles/hardware.h"
#include "models/transformer.h"

namespace ddp {
namespace {

// The path of the trace, relative to the result.
std::string path_of_trace(const TimelineSettings& settings) {
  return std::filesystem::absolute(settings.trace)
      .lexically_proximate(std::filesystem::absolute(settings.output).parent_path());
}

Result to_result(const TimelineSettings& settings, const Run& run, const MeasuredSteps& measured) {
  const std::vector<NamedTensor> trained = settings.clock == kCluster
                                               ? model_on_cluster(settings).named_parameters()
                                               : make_layered_model({})->named_parameters();
  Parameters parameters = joined(describe(settings.workload, trained),
                                 {{"clock", settings.clock},
                                  {"trace", path_of_trace(settings)},
                                  {"variants", c10::Join(", ", settings.variants)},
                                  {"cap_bytes", settings.trainer.cap_bytes},
                                  {"first_bucket_bytes", settings.trainer.first_bucket_bytes},
                                  {"rate_gbit", settings.rate_gbit},
                                  {"latency_us", settings.latency_us}});
  if (settings.clock == "virtual") {
    parameters = joined(parameters, {{"alpha_ns", settings.network.alpha_ns},
                                     {"beta_ns_per_byte", settings.network.beta_ns_per_byte},
                                     {"launch_overhead_ns", settings.network.launch_overhead_ns},
                                     {"slower", settings.slower}});
  } else if (settings.clock == kCluster) {
    parameters = joined(parameters, {{"gpu", settings.gpu},
                                     {"link", settings.link},
                                     {"sequence_length", settings.sequence_length}});
  }
  Result result = {.run = run, .parameters = std::move(parameters)};
  for (std::size_t variant = 0; variant < measured.variants.size(); ++variant) {
    const at::Tensor row = measured.seconds[static_cast<std::int64_t>(variant)];
    const auto* values = row.const_data_ptr<double>();
    result.series.push_back({.labels = {{"variant", measured.variants[variant]}},
                             .unit = "s",
                             .values = {values, values + row.numel()}});
  }
  return result;
}

void print_table(const Result& result) {
  std::printf("%-12s%12s\n", "a step [ms]", "median");
  for (const Series& variant : result.series) {
    std::printf("%-12s%12.3f\n", std::get<std::string>(variant.labels[0].second).c_str(),
                1e3 * percentile(variant.values, 50));
  }
}

}  // namespace

at::Tensor median_steps(const MeasuredSteps& measured) {
  const std::int64_t middle = (measured.seconds.size(1) - 1) / 2;
  return measured.seconds.argsort(/*stable=*/true, /*dim=*/1).select(1, middle);
}

ProfiledModel model_on_cluster(const TimelineSettings& settings) {
  return ProfiledModel(transformer_profile(
      settings.model, transformer_shape(settings.model),
      {.batch = settings.workload.size.batch, .length = settings.sequence_length}));
}

void save_steps(const TimelineSettings& settings, const Run& run, const MeasuredSteps& measured) {
  const Result result = to_result(settings, run, measured);
  save_result(settings, result);
  print_table(result);
}

}  // namespace ddp

namespace {

using namespace ddp;

const std::map<std::string, Size> kPresets = {
    {"quick", {.batch = 8, .image = 32, .steps = 5, .warmup = 3}},
    {"full", {.batch = 16, .image = 32, .steps = 15, .warmup = 3}},
    {"paper", {.batch = 32, .image = 32, .steps = 51, .warmup = 3}},
};
const PresetsInWords kInWords = {
    .quick = "3 steps to warm up, 5 measured, on 8 images of 32x32 a rank",
    .full = "3 and 15 steps, on 16 images",
    .paper = "3 and 51 steps, on 32 images",
};

void add_flags(CLI::App& line, TimelineSettings& settings) {
  add_choice(line, "--clock", settings.clock, "Whose time is drawn", {"virtual", "real", kCluster});
  line.add_option("--variants", settings.variants, "What is drawn")->capture_default_str();
  const auto number = [&](const char* flag, auto& value, const char* what) {
    line.add_option(flag, value, what)->check(CLI::NonNegativeNumber)->capture_default_str();
  };
  number("--alpha-ns", settings.network.alpha_ns, "Virtual: latency of a message");
  number("--beta-ns-per-byte", settings.network.beta_ns_per_byte, "Virtual: time of a byte");
  number("--launch-overhead-ns", settings.network.launch_overhead_ns,
         "Virtual: what a launch costs the caller");
  number("--forward-us", settings.costs.forward_us, "Virtual: of conv1, conv2, conv3, fc1, fc2");
  number("--backward-us", settings.costs.backward_us, "Virtual: of the same");
  number("--slower", settings.slower,
         "Virtual: the part by which each rank computes longer than the one before it");
  add_choice(line, "--model", settings.model, "Cluster: what is trained", transformer_names());
  add_choice(line, "--gpu", settings.gpu, "Cluster: which GPUs", known_gpus());
  add_choice(line, "--link", settings.link, "Cluster: what connects them", known_links());
  const auto positive = [&](const char* flag, auto& value, const char* what) {
    line.add_option(flag, value, what)->check(CLI::PositiveNumber);
  };
  positive("--sequence-length", settings.sequence_length, "Cluster: tokens of a sequence");
  positive("--batch-size", settings.workload.size.batch,
           "Images of a rank, or sequences; default: the preset's, of the cluster 4");
  positive("--steps", settings.workload.size.steps, "Measured steps; default: the preset's");
  positive("--cap-bytes", settings.trainer.cap_bytes, "A bucket's: bucketed and Reducer");
  positive("--first-bucket-bytes", settings.trainer.first_bucket_bytes,
           "The Reducer's first bucket");
}

// One step, since time is virtual, with the published experiment's best cap.
void choose_training_on_cluster(const CLI::App& line, TimelineSettings& settings) {
  settings.workload.model = settings.model;
  settings.workload.size.image = 0;
  settings.workload.size.steps = 1;
  settings.workload.size.warmup = 0;
  if (line.count("--batch-size") == 0) {
    settings.workload.size.batch = 4;
  }
  if (line.count("--cap-bytes") == 0) {
    settings.trainer.cap_bytes = std::int64_t{100} << 20;
  }
}

// The files' default places: results and traces refer to each other.
void choose_files(TimelineSettings& settings) {
  settings.output = result_path(settings, {.program = kTimelineProgram,
                                           .implementation = settings.implementation,
                                           .preset = settings.preset});
  if (settings.trace.empty()) {
    settings.trace = std::filesystem::path(settings.output).replace_extension(".trace.json");
  }
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("What happens within a step, with each way of averaging gradients");
  TimelineSettings settings;
  settings.workload.size = chosen(kPresets, argc, argv);
  ddp::add_flags(line, settings, argc, argv);
  add_flags(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (settings.clock == kCluster) {
    choose_training_on_cluster(line, settings);
  }
  choose_files(settings);
  if (settings.clock == kCluster) {
    return run_by_cluster_clock(settings);
  }
  return settings.clock == "virtual" ? run_by_virtual_clock(settings) : run_by_real_clock(settings);
}
