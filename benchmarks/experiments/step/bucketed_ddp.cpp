// Stage 03: how long an iteration of training a transformer takes with buckets of several sizes,
// compared with the variants without buckets of stages 01 and 02, libtorch's c10d::Reducer, and
// computing alone.
//
// Source: Stanford CS336, assignment 2, which asks for bucketed DDP over bucket sizes; the published
// answer trained xl on 2 GPUs (figures/reference/bucketed_ddp.csv).
//
// Published sizes are called the maximum of a bucket. By stage 03's contract a size is a threshold:
// a bucket closes once it has reached it, and no tensor is cut. At 1 MB all 338 buckets of xl are
// larger, 10 to 61 times: a weight each. The reduced model's are larger by the same factors.
//
// An iteration contains forward, the cross entropy of the next token, backward, finish() and AdamW.
// On a GPU finish() begins when backward's computation has ended there, so that its time is what
// overlap could not hide. The Reducer waits inside backward, and has no finish(): the corresponding
// time is that of its backward beyond that of computing alone. Each rank's times are kept; published
// are the means over the iterations, and of those the maximum over all ranks.
//
// All variants are interleaved. If there is not enough memory for that, they are measured one after
// another, on one model (--sequential).
#include "03_bucketed_ddp/bucketed_ddp.h"

#include <c10/util/StringUtil.h>
#include <torch/optim/adamw.h>

#include <algorithm>

#include "experiments/step/step.h"
#include "models/profiles/hardware.h"

namespace ddp {
namespace {

constexpr const char* kVariantWithSizes = "bucketed";

// The Reducer's bucket sizes, scaled from xl as for the other variants: PyTorch's default.
constexpr std::int64_t kReducerMegabytes = 25;
constexpr std::int64_t kReducerFirstMegabytes = 1;

std::function<void()> adamw(std::vector<at::Tensor> parameters) {
  return [optimizer = std::make_shared<torch::optim::AdamW>(std::move(parameters))] {
    optimizer->step();
  };
}

StepSettings training_defaults(const std::string& preset) {
  StepSettings settings;
  settings.variants = {kVariantWithSizes, "naive", "flat", "overlapped", kReducer, kComputeOnly};
  settings.timed = {
      {"train", Part::kForward, Part::kUpdate, /*together=*/true},
      {"backward", Part::kBackward, Part::kBackward, /*together=*/false, /*waited=*/true},
      {"all-reduce", Part::kFinish, Part::kFinish}};
  settings.times_of = TimesOf::kEach;
  settings.sizes = {1, 10, 100, 1000};
  settings.batch_sizes = {2, 4};
  settings.trainer.update = adamw;
  if (preset.empty() || preset == "quick") {
    settings.workload = {"reduced", {.steps = 8, .warmup = 2}};
    settings.lengths = {16, 64};
  } else {
    settings.workload = {"xl", {.steps = 10, .warmup = 10}};
    settings.lengths = {128, 256, 512};
    settings.interleaved = false;
  }
  if (preset == kPublishedPreset) {
    settings.workload.size = {.steps = 1, .warmup = 0};
  }
  return settings;
}

void add_training_flags(CLI::App& line, StepSettings& settings) {
  add_choice(line, "--model", settings.workload.model, "What is trained", transformer_names());
  add_number(line, "--batch-sizes", settings.batch_sizes, "Sequences of each rank");
  add_number(line, "--sequence-lengths", settings.lengths, "Tokens of a sequence");
  add_number(line, "--bucket-mb", settings.sizes,
             "Caps in MB of xl's gradients, of \"reduced\" the same part of its own");
  if (settings.on_cluster()) {
    add_shape_flag(line, settings.cluster);
    return;
  }
  add_number(line, "--repetitions", settings.workload.size.steps,
             "How often each variant is measured");
  add_number(line, "--warmup", settings.workload.size.warmup, "Repetitions before them", 0);
  line.add_flag("--interleaved,!--sequential", settings.interleaved,
                "All variants interleaved, each with a model of its own; or one after another, on "
                "one model. Default: the preset's");
}

std::string settle_training(const CLI::App& /*line*/, StepSettings& settings) {
  std::ranges::sort(settings.sizes);
  if (!settings.cluster.shape.empty()) {
    settings.workload.model = c10::Join(",", settings.cluster.shape);
  }
  return "";
}

TrainedModels models_trained(const StepSettings& settings) {
  return {
      .model = settings.workload.model,
      .of_each_rank = settings.interleaved ? settings.sizes.size() + settings.variants.size() : 1};
}

TransformerShape trained_shape(const StepSettings& settings) {
  return shape_of(settings.cluster, settings.workload.model);
}

// All ways of training, with their caps.
std::vector<Way> ways_of_training(const StepSettings& settings) {
  const ProfiledModel model(
      transformer_profile(settings.workload.model, trained_shape(settings), {}));
  const auto cap = [&](std::int64_t mb) { return cap_of_model(mb, settings.workload.model); };
  std::vector<Way> ways;
  for (const std::string& variant : settings.variants) {
    Way way = {variant, settings.trainer, {{"variant", variant}}};
    way.options.cap_bytes = cap(kReducerMegabytes);
    way.options.first_bucket_bytes = cap(kReducerFirstMegabytes);
    if (variant != kVariantWithSizes) {
      ways.push_back(way);
      continue;
    }
    for (const std::int64_t megabytes : settings.sizes) {
      way.options.cap_bytes = cap(megabytes);
      const auto buckets =
          assign_buckets(tensors_of(model.named_parameters()), way.options.cap_bytes).size();
      way.labels = {{"variant", variant},
                    {"bucket_size_mb", megabytes},
                    {"cap_bytes", way.options.cap_bytes},
                    {"buckets", static_cast<std::int64_t>(buckets)}};
      ways.push_back(way);
    }
  }
  return ways;
}

std::vector<Comparison> training_rows(const StepSettings& settings, const std::vector<int>&) {
  const std::vector<Way> ways = ways_of_training(settings);
  std::vector<Comparison> rows;
  for (const std::int64_t batch : settings.batch_sizes) {
    for (const std::int64_t length : settings.lengths) {
      Comparison row = {.labels = {{"local_bs", batch}, {"seq_len", length}},
                        .workload = settings.workload,
                        .ways = ways};
      row.workload.size.batch = static_cast<int>(batch);
      row.workload.length = length;
      if (settings.interleaved || settings.on_cluster()) {
        rows.push_back(row);
        continue;
      }
      const Parameters labels = row.labels;
      for (const Way& way : ways) {  // each a row of its own
        row.labels = joined(labels, way.labels);
        row.ways = {{way.variant, way.options}};
        rows.push_back(row);
      }
    }
  }
  return rows;
}

Parameters training_parameters(const StepSettings& settings, const std::vector<Comparison>&) {
  const TransformerShape shape = trained_shape(settings);
  const std::string& model = settings.workload.model;
  return {{"model", model},
          {"parameters", parameter_count(shape)},
          {"d_model", shape.d_model},
          {"d_ff", shape.d_ff},
          {"layers", shape.layers},
          {"heads", shape.heads},
          {"vocabulary", shape.vocabulary},
          {"dtype", "float32"},
          {"optimizer", "AdamW"},
          {"repetitions", settings.workload.size.steps},
          {"warmup", settings.workload.size.warmup},
          {"interleaved", std::int64_t{settings.interleaved}},
          {"reducer_cap_bytes", cap_of_model(kReducerMegabytes, model)},
          {"reducer_first_bucket_bytes", cap_of_model(kReducerFirstMegabytes, model)},
          {"rate_gbit", settings.rate_gbit},
          {"latency_us", settings.latency_us}};
}

// Kernels that wait for a GPU: about 1,000, NVIDIA Developer Forums, 68937.
constexpr std::int64_t kLaunchQueue = 1024;

// The published GPUs are not named. An A100 with TF32 and PCI Express has the author's other tables.
PublishedHardware training_hardware(const StepSettings& settings, const Calibration& fitted) {
  const auto ns = [&](const char* name) {
    return static_cast<std::int64_t>(1e9 * fitted.constant(name));
  };
  PublishedHardware hardware = {
      .gpu = known_gpu("A100"),
      .topology = {.gpus_per_node = 1 << 20,
                   .inside = {.beta_ns_per_byte = 1e9 / fitted.constant("link_bytes_per_second")},
                   .algorithm = cluster::AllReduce::kNccl,
                   .nccl = {.generation = cluster::NcclMachine::kAmpere},
                   .overhead_ns = ns("all_reduce_overhead_s")},
      .launch_queue = kLaunchQueue,
      .pace = {.forward_efficiency = fitted.constant("forward_efficiency"),
               .backward_efficiency = fitted.constant("backward_efficiency"),
               .memory_efficiency = fitted.constant("memory_efficiency"),
               .kernel_ns = kKernelNs,
               .host = {.forward_ns = ns("forward_host_s"), .backward_ns = ns("backward_host_s")}}};
  apply(settings.cluster, hardware);
  if (hardware.topology.nccl.nvlink) {
    hardware.slowdown_beside_communication = slowdown_by_nvlink(hardware.gpu);
  } else {
    hardware.kernel_ns_beside_communication = ns("kernel_s_beside_all_reduce");
    hardware.slowdown_beside_computing = fitted.constant("slowdown_of_all_reduce");
  }
  hardware.gpu.launch_ns = ns("launch_s");
  hardware.copy_bytes_per_second = hardware.pace.memory_efficiency * hardware.gpu.bytes_per_second;
  return hardware;
}

Simulated simulated_training(const StepSettings& settings, const Comparison& row) {
  const Calibration fitted = fitted_for(settings.cluster, "bucketed_ddp");
  const PublishedHardware hardware = training_hardware(settings, fitted);
  const TransformerShape shape = trained_shape(settings);
  const auto elements = static_cast<double>(parameter_count(shape));
  // What the optimizer reads and writes.
  const double update_s = fitted.constant("update_elements") * elements * sizeof(float) /
                          hardware.copy_bytes_per_second;
  // Averaging begins, by the published program's clock, when its host has launched backward, and in
  // the flat variant the copies behind it, too: about when the GPU has computed all gradients.
  const bool by_host = fitted.constant("measures_by_host") > 0;
  const auto seconds = [=](const Way& way, const cluster::StepTimes& times) -> std::vector<double> {
    const double train = in_seconds(times.total_ns) + update_s;
    const std::int64_t late = times.total_ns - times.forward_ns - times.backward_ns;
    if (way.variant == kReducer) {  // waits inside backward
      return {train, in_seconds(times.backward_ns + late), 0};
    }
    const bool from_host = by_host && way.variant != "flat" && way.variant != kComputeOnly;
    return {train, in_seconds(times.backward_ns),
            in_seconds(from_host ? times.total_ns - times.host_backward_end_ns : late)};
  };
  return {.profile = transformer_profile(settings.workload.model, shape,
                                         {row.workload.size.batch, row.workload.length}),
          .hardware = hardware,
          .gpus = single_world(settings.cluster, 2),
          .seconds = seconds,
          .parameters = {{"besides_s", update_s}}};
}

}  // namespace

StepExperiment bucketed_ddp() {
  return {
      .name = "bucketed_ddp",
      .about =
          "Iteration of a transformer over the size of buckets: Stanford CS336, "
          "assignment 2",
      .presets = {.quick = "--model reduced (xl at 1/50 of its width; caps are the same part of "
                           "its gradients) --sequence-lengths 16,64 --warmup 2 --repetitions 8 "
                           "--interleaved",
                  .full = "--model xl --sequence-lengths 128,256,512 --warmup 10 --repetitions "
                          "10 --sequential; takes 80 GB and hours on a CPU, so choose a "
                          "smaller --model there",
                  .paper = "the same on the hardware of the published experiment, 2 GPUs in "
                           "one machine"},
      .defaults = training_defaults,
      .add_flags = add_training_flags,
      .settle = settle_training,
      .trained = models_trained,
      .rows = training_rows,
      .parameters = training_parameters,
      .simulated = simulated_training};
}

}  // namespace ddp
