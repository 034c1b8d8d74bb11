// Stage 03 compared with libtorch's c10d::Reducer, for several buffer sizes: forward and backward
// of ResNet-50.
//
// Source: compare_ddp.py in PyTorch's benchmarks/distributed/ddp/compare, which compares its C++
// core (DistributedDataParallel, whose work the Reducer does) with a bucketed DDP in Python, with
// asynchronous and with synchronous reduction. On real ranks stage 03 replaces the latter: async, and
// sync, which is overlap = false. The cluster runs Python's, and stage 03 beside it. ResNet-50's
// 25,557,032 parameters are 24.37M (M = 2^20), so buffers of 25M or more hold all of it.
//
// The published comparison is unequal. The same number M is the core's bucket_cap_mb, M MiB, and
// the size of the Python buffers in elements, M * 2^20 float32 or 4M MiB: core has four times as
// many buckets, and has begun long before the first of the others is full. It is repeated as
// published ("core"), and with the core's cap at 4M MiB as well ("core, equal bytes").
//
// The procedure is that of the script, and flags change it one by one: the loss, whose times count,
// the backend, and that core broadcasts BatchNorm's buffers before each forward, as
// DistributedDataParallel does and the others do not: the published 1 % of forward. Unlike in the
// script, the variants are interleaved, and gradients are set to none between steps, not to zero.
// The core uses its own buckets from the second iteration on, so discard at least two.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "experiments/step/step.h"
#include "models/profiles/hardware.h"

namespace ddp {
namespace {

constexpr const char* kComparedModel = "resnet50";

struct Candidate {
  const char* label;
  const char* variant;
  std::int64_t cap_mib;  // for each M of the buffer size
};
const std::vector<Candidate> kOnRanks = {{"core", kReducer, 1},
                                         {"core, equal bytes", kReducer, 4},
                                         {"async", "bucketed", 4},
                                         {"sync", "bucketed sync", 4}};
const std::vector<Candidate> kOnCluster = {{"core", kReducer, 1},
                                           {"async", "Python DDP", 4},
                                           {"sync", "Python DDP sync", 4},
                                           {"core, equal bytes", kReducer, 4},
                                           {"stage 03", "bucketed", 4}};

StepSettings comparison_defaults(const std::string& preset) {
  StepSettings settings;
  settings.backend = kGlooBackend;
  settings.timed = {{"forward", Part::kForward, Part::kForward, /*together=*/true, /*waited=*/true},
                    {"backward", Part::kBackward, Part::kFinish}};
  settings.part_label = "direction";
  settings.variants = {kReducer, "bucketed", "bucketed sync"};
  settings.trainer.broadcast_buffers = true;
  // As in the script, the iterations that are discarded are among the 40.
  settings.workload = {kComparedModel, {.batch = 32, .image = 224, .steps = 40, .warmup = 20}};
  for (int size = 3; size <= 27; ++size) {
    settings.sizes.push_back(size);
  }
  if (preset == kPublishedPreset) {
    settings.variants = {kReducer, "Python DDP", "Python DDP sync", "bucketed"};
    settings.trainer.broadcast_buffers = false;
    settings.workload.size.steps = 1;
    settings.workload.size.warmup = 0;
  } else if (preset.empty() || preset == "quick") {
    settings.sizes = {3, 12, 27};
    settings.workload.size = {.batch = 2, .image = 32, .steps = 18, .warmup = 3};
  }
  return settings;
}

void add_comparison_flags(CLI::App& line, StepSettings& settings) {
  Size& size = settings.workload.size;
  add_number(line, "--buffer-sizes", settings.sizes, "In M (2^20) elements, such as 3,24,25");
  add_number(line, "--batch-size", size.batch, "Samples of each rank");
  add_number(line, "--image-size", size.image, "Pixels of an image's side", 32);
  if (settings.on_cluster()) {
    return;
  }
  add_number(line, "--iterations", size.steps, "Of each variant and buffer size");
  add_number(line, "--discard", size.warmup, "How many of them are discarded, the first ones", 0);
  add_choice(line, "--loss", settings.loss, "What forward ends in", {"mse", "cross-entropy"});
  add_choice(line, "--times-of", settings.whose, "The rank whose times count",
             {"rank0", "slowest"});
  line.get_option("--backend")
      ->description("What moves tensors; default: gloo, through host memory on GPUs");
  line.add_flag("--broadcast-buffers,!--no-broadcast-buffers", settings.trainer.broadcast_buffers,
                "Whether core broadcasts BatchNorm's buffers before forward; default: it does");
}

at::Tensor mean_squared_error(const at::Tensor& scores, const at::Tensor& targets) {
  return at::mse_loss(scores, targets);
}

std::string settle_comparison(const CLI::App& /*line*/, StepSettings& settings) {
  std::ranges::sort(settings.sizes);
  settings.workload.regression = settings.loss == "mse";
  settings.trainer.loss = settings.workload.regression ? mean_squared_error : cross_entropy;
  settings.times_of = settings.whose == "rank0" ? TimesOf::kFirst : TimesOf::kSlowest;
  const Size& size = settings.workload.size;
  return size.warmup < size.steps
             ? ""
             : "--discard: " + std::to_string(size.warmup) + " of " + std::to_string(size.steps) +
                   " iterations leave none to measure; discard fewer";
}

std::vector<Comparison> comparison_rows(const StepSettings& settings, const std::vector<int>&) {
  std::vector<Comparison> rows;
  for (const std::int64_t size : settings.sizes) {
    Comparison row = {.labels = {{"buffer_size", size}}, .workload = settings.workload};
    row.workload.size.steps -= row.workload.size.warmup;
    for (const Candidate& candidate : settings.on_cluster() ? kOnCluster : kOnRanks) {
      if (settings.has(candidate.variant)) {
        Way way = {candidate.variant, settings.trainer, {{"variant", candidate.label}}};
        way.options.cap_bytes = size * candidate.cap_mib << 20;
        row.ways.push_back(way);
      }
    }
    rows.push_back(row);
  }
  return rows;
}

ModelProfile compared_profile(const StepSettings& settings) {
  const Size& size = settings.workload.size;
  return resnet_profile(kComparedModel, {.batch = size.batch, .side = size.image});
}

Parameters comparison_parameters(const StepSettings& settings,
                                 const std::vector<Comparison>& rows) {
  const Size& size = settings.workload.size;
  const ProfiledModel model(compared_profile(settings));
  const Parameters common = joined(
      joined({{"model", kComparedModel}}, describe(summarize_model(model.named_parameters()))),
      {{"batch_size", size.batch},
       {"image_size", size.image},
       {"iterations", size.steps},
       {"discarded", size.warmup},
       {"rate_gbit", settings.rate_gbit},
       {"latency_us", settings.latency_us}});
  if (settings.on_cluster()) {
    return common;
  }
  std::vector<std::string> labels;
  for (const Way& way : rows.front().ways) {
    labels.push_back(std::get<std::string>(way.labels.front().second));
  }
  return joined(common, {{"buffer_sizes", c10::Join(", ", settings.sizes)},
                         {"variants", c10::Join("; ", labels)},
                         {"first_bucket_bytes", settings.trainer.first_bucket_bytes},
                         {"loss", settings.loss},
                         {"times_of", settings.whose},
                         {"broadcasts_buffers", std::int64_t{settings.trainer.broadcast_buffers}}});
}

// Neither GPUs nor network nor their number are named: the constants are relative to 2 V100, on one
// link.
Simulated simulated_comparison(const StepSettings& settings, const Comparison& /*row*/) {
  const Calibration fitted = fitted_for(settings.cluster, "compare_ddp");
  PublishedHardware hardware = {
      .gpu = known_gpu("V100"),
      .topology = {.gpus_per_node = 1 << 20,
                   .inside = {.beta_ns_per_byte = 1e9 / fitted.constant("link_bytes_per_second")},
                   .algorithm = cluster::AllReduce::kRing},
      .pace = {.forward_efficiency = fitted.constant("forward_efficiency"),
               .backward_efficiency = fitted.constant("backward_efficiency")}};
  apply(settings.cluster, hardware);
  return {.profile = compared_profile(settings),
          .hardware = hardware,
          .gpus = single_world(settings.cluster, 2),
          .seconds = [](const Way&, const cluster::StepTimes& times) -> std::vector<double> {
            return {in_seconds(times.forward_ns), in_seconds(times.total_ns - times.forward_ns)};
          }};
}

}  // namespace

StepExperiment compare_ddp() {
  const std::string as_published =
      "buffers of 3, 4, 5 ... 27 M elements; batch 32 of 224x224 images; 40 iterations, 20 of them "
      "discarded; 2 ranks";
  return {.name = "compare_ddp",
          .about =
              "Forward and backward of ResNet-50 over buffer sizes: PyTorch's "
              "benchmarks/distributed/ddp/compare",
          .presets = {.quick = "buffers of 3, 12, 27 M elements; batch 2 of 32x32 images; 18 "
                               "iterations, 3 of them discarded; 2 ranks",
                      .full = as_published,
                      .paper = as_published + " on 2 GPUs of any model"},
          .defaults = comparison_defaults,
          .add_flags = add_comparison_flags,
          .settle = settle_comparison,
          .rows = comparison_rows,
          .parameters = comparison_parameters,
          .simulated = simulated_comparison};
}

}  // namespace ddp
