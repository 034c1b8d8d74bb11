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
#include <filesystem>
#include <map>

#include "experiments/timeline/clocks.h"
#include "harness/command_line.h"
#include "harness/presets.h"
#include "harness/result_file.h"
#include "models/profiles/hardware.h"
#include "models/transformer.h"

namespace {

using namespace ddp;
namespace fs = std::filesystem;

constexpr const char* kProgram = "timeline";

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
  line.add_option("--clock", settings.clock, "Whose time is drawn")
      ->check(CLI::IsMember({"virtual", "real", kCluster}))
      ->capture_default_str();
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
  line.add_option("--model", settings.model, "Cluster: what is trained")
      ->check(CLI::IsMember(transformer_names()))
      ->capture_default_str();
  line.add_option("--gpu", settings.gpu, "Cluster: which GPUs")
      ->check(CLI::IsMember(known_gpus()))
      ->capture_default_str();
  line.add_option("--link", settings.link, "Cluster: what connects them")
      ->check(CLI::IsMember(known_links()))
      ->capture_default_str();
  const auto positive = [&](const char* flag, auto& value, const char* what) {
    line.add_option(flag, value, what)->check(CLI::PositiveNumber);
  };
  positive("--sequence-length", settings.sequence_length, "Cluster: tokens of a sequence");
  positive("--batch-size", settings.workload.size.batch,
           "Images of a rank, or sequences; default: the preset's");
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
  apply_preset(settings.workload.size, {.batch = 4});
  if (line.count("--cap-bytes") == 0) {
    settings.trainer.cap_bytes = std::int64_t{100} << 20;
  }
}

// The files' default places: results and traces refer to each other.
void choose_files(TimelineSettings& settings) {
  Run run;
  run.program = kProgram;
  run.implementation = settings.implementation;
  run.preset = settings.preset;
  if (settings.output.empty()) {
    settings.output = default_result_path(run);
  }
  if (settings.trace.empty()) {
    settings.trace = fs::path(settings.output).replace_extension(".trace.json");
  }
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("What happens within a step, with each way of averaging gradients");
  TimelineSettings settings;
  ddp::add_flags(line, settings, argc, argv);
  add_flags(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (settings.clock == kCluster) {
    choose_training_on_cluster(line, settings);
  }
  apply_preset(settings.workload.size, kPresets.at(settings.preset));
  choose_files(settings);
  if (settings.clock == kCluster) {
    return run_by_cluster_clock(settings);
  }
  return settings.clock == "virtual" ? run_by_virtual_clock(settings) : run_by_real_clock(settings);
}
