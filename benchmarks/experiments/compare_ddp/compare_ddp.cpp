// Stage 03 compared with libtorch's c10d::Reducer, for several buffer sizes: forward and backward
// of ResNet-50.
//
// The experiment is PyTorch's own comparison of its C++ core (DistributedDataParallel, whose work
// the Reducer does) with a bucketed DDP in Python, with asynchronous and with synchronous
// reduction. Stage 03 replaces the latter: async, and sync, which is overlap = false. Buffer sizes
// are 3M to 27M elements, M = 2^20; ResNet-50's 25,557,032 parameters are 24.37M, so buffers of 25M
// or more hold all of it.
//
// The published comparison is unequal. The same number M is the core's bucket_cap_mb, M MiB, and
// the size of the Python buffers in elements, M * 2^20 float32 or 4M MiB: core has four times as
// many buckets, and has begun long before the first of the others is full. It is repeated as
// published ("core"), and with the core's cap at 4M MiB as well ("core, equal bytes"). The core's
// first bucket is 1 MiB in both, as in PyTorch.
//
// The procedure is that of the published script, compare_ddp.py in PyTorch's
// benchmarks/distributed/ddp/compare, and flags change it one by one. The loss is the mean squared
// error against random targets (--loss). Rank 0's times count (--times-of). Gloo moves gradients,
// on GPUs as well (--backend). Before each forward core broadcasts the buffers of BatchNorm, as
// DistributedDataParallel does and the others do not (--no-broadcast-buffers): the published 1 % of
// forward. Forward is timed with the loss and core's preparations for a step; backward with the
// reduction, which for the stage is all of finish().
//
// Unlike in the script, the variants are interleaved, iteration by iteration, with a barrier before
// each. Each has one model and one batch for all buffer sizes; only its synchronizer is made anew
// for each. Gradients are set to none between steps, not to zero. The core uses its own buckets
// from the second iteration on, so at least two iterations should be discarded.
//
// All that is measured. `compare_ddp published` simulates it: with the two reductions of the published
// Python DDP, and then "stage 03", with buffers of the same size.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "measuring/benchmark.h"
#include "measuring/command_line.h"
#include "measuring/interleaved.h"
#include "measuring/on_cluster.h"
#include "measuring/resumable_rows.h"
#include "measuring/trainer.h"
#include "measuring/variants.h"
#include "measuring/workload.h"
#include "models/profiles/hardware.h"
#include "models/profiles/model_profile.h"

namespace {

using namespace ddp;

constexpr const char* kComparedModel = "resnet50";

// How much is trained.
struct ComparisonAmount {
  std::set<int> buffer_sizes;  // in M elements
  int batch = 0;               // samples per rank
  int image = 0;               // pixels per side
  int iterations = 0;          // per variant and buffer size
  int discarded = 0;           // the first of these iterations
};

struct ComparisonSettings : BenchmarkOptions {
  ComparisonAmount amount;
  // How it is measured: by default as in PyTorch's script, but for its interleaved variants.
  std::string loss = "mse";        // against random numbers in [0, 1); or "cross-entropy"
  std::string times_of = "rank0";  // whose seconds count; or "slowest"
  bool broadcasts_buffers = true;  // core, before forward
  ClusterFlags cluster;
};

constexpr std::int64_t kParameters = 25'557'032;  // torchvision's, and so the published model's
constexpr std::int64_t kOutputs = 1000;
const std::vector<std::string> kDirections = {"forward", "backward"};

// One of the compared synchronizers.
struct Candidate {
  const char* label;
  const char* variant;     // see all_variants()
  std::int64_t cap_bytes;  // per bucket, for each M (2^20) of the buffer size
};
// The published bucket_cap_mb is M, in MiB, while the other buffers hold M * 2^20 float32 elements.
constexpr std::int64_t kMib = 1 << 20;
constexpr Candidate kAllCandidates[] = {{"core", "Reducer", 1 * kMib},
                                        {"core, equal bytes", "Reducer", 4 * kMib},
                                        {"async", "bucketed", 4 * kMib},
                                        {"sync", "bucketed sync", 4 * kMib}};

at::Tensor mean_squared_error(const at::Tensor& scores, const at::Tensor& targets) {
  return at::mse_loss(scores, targets);
}

LabelledBatch make_batch_for(const ComparisonSettings& settings,
                             const DeviceContext& device_context) {
  const int batch = settings.amount.batch;
  LabelledBatch made = make_batch(
      {.model = kComparedModel, .size = {.batch = batch, .image = settings.amount.image}},
      settings.seed, device_context);
  if (settings.loss == "mse") {
    at::Generator generator =
        at::detail::createCPUGenerator(settings.seed + device_context.group->getRank());
    made.labels = at::rand({batch, kOutputs}, generator).to(device_context.device);
  }
  return made;
}

// Each variant keeps one model; its synchronizer is made anew for each buffer size.
class BufferComparison {
 public:
  BufferComparison(const ComparisonSettings& settings, const DeviceContext& device_context)
      : settings_(settings),
        device_context_(device_context),
        batch_(make_batch_for(settings, device_context)),
        timer_(make_device_timer(device_context.device)) {
    const std::vector<std::string> usable = usable_variants(
        {"Reducer", "bucketed", "bucketed sync"}, settings.implementation, device_context);
    for (const Candidate& candidate : kAllCandidates) {
      if (std::ranges::find(usable, candidate.variant) != usable.end()) {
        candidates_.push_back(candidate);
        models_.push_back(make_model(kComparedModel, settings.seed, device_context.device));
      }
    }
    summary_ = summarize_model(models_.front()->named_parameters());
    TORCH_CHECK(summary_.total == kParameters, kComparedModel, " has ", summary_.total,
                " parameters, and the published one has ", kParameters);
  }

  const ModelSummary& model() const { return summary_; }

  // Everything that must agree between a run and the one that it resumes.
  Result header() const {
    const ComparisonAmount& amount = settings_.amount;
    const Parameters model = {{"model", kComparedModel}};
    const Parameters others = {{"batch_size", amount.batch},
                               {"image_size", amount.image},
                               {"iterations", amount.iterations},
                               {"discarded", amount.discarded},
                               {"buffer_sizes", c10::Join(", ", amount.buffer_sizes)},
                               {"variants", c10::Join("; ", labels())},
                               {"first_bucket_bytes", VariantOptions().first_bucket_bytes},
                               {"loss", settings_.loss},
                               {"times_of", settings_.times_of},
                               {"broadcasts_buffers", std::int64_t{settings_.broadcasts_buffers}},
                               {"rate_gbit", settings_.rate_gbit},
                               {"latency_us", settings_.latency_us}};
    return {.run = to_run(settings_, "compare_ddp", device_context_.group),
            .parameters = joined(joined(model, describe(summary_)), others)};
  }

  // On rank 0 the seconds of each counted iteration. Buffers hold buffer_size * 2^20 elements. The
  // first call checks that all variants have core's gradients: models are equal only before training.
  std::vector<Series> measure(int buffer_size, Progress& progress) {
    std::vector<Trainer> trainers = make_trainers(buffer_size);
    if (!std::exchange(checked_, true)) {
      std::vector<std::string> names;
      for (const Candidate& candidate : candidates_) {
        names.emplace_back(candidate.variant);
      }
      check_gradients(names, trainers, /*baseline=*/0, batch_);
    }
    const int discarded = settings_.amount.discarded;
    at::Tensor times = measure_interleaved(
        {.measured = settings_.amount.iterations - discarded, .warmup = discarded}, trainers.size(),
        [&](std::size_t turn) { return iterate(trainers[turn]); }, &progress);
    if (settings_.times_of == "slowest") {
      times = largest_of_ranks(times, device_context_);
    }
    return series_of_all(times, labelled("variant", labels()), labelled("direction", kDirections));
  }

 private:
  std::vector<std::string> labels() const {
    std::vector<std::string> labels;
    for (const Candidate& candidate : candidates_) {
      labels.emplace_back(candidate.label);
    }
    return labels;
  }

  // New synchronizers for the same models. They remove their hooks when they are destroyed.
  std::vector<Trainer> make_trainers(int buffer_size) const {
    std::vector<Trainer> trainers;
    trainers.reserve(candidates_.size());
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      TrainerOptions options;
      options.cap_bytes = buffer_size * candidates_[i].cap_bytes;
      options.broadcast_buffers = settings_.broadcasts_buffers;
      options.loss = settings_.loss == "mse" ? mean_squared_error : cross_entropy;
      options.timeline = device_context_.timeline;
      trainers.emplace_back(candidates_[i].variant, models_[i], device_context_.group, options);
    }
    return trainers;
  }

  // One iteration, begun together by all ranks. Seconds of kDirections. As published, the device
  // finishes forward before backward begins.
  std::vector<double> iterate(Trainer& trainer) {
    at::Tensor loss;
    const double forward =
        seconds_together(*timer_, device_context_.group, [&] { loss = trainer.forward(batch_); });
    timer_->start();
    trainer.backward(loss);
    trainer.finish();
    timer_->stop();
    const double backward = timer_->seconds();
    trainer.update();
    return {forward, backward};
  }

  const ComparisonSettings& settings_;
  const DeviceContext& device_context_;
  const LabelledBatch batch_;
  const std::unique_ptr<DeviceTimer> timer_;
  std::vector<Candidate> candidates_;
  std::vector<std::shared_ptr<Model>> models_;  // one for each candidate
  ModelSummary summary_;
  bool checked_ = false;
};

// One rank's part: libtorch's Reducer ("core" and "core, equal bytes") and stage 03 ("async" and
// "sync") train ResNet-50s with buffers of several sizes. Saves the result, complete on rank 0: a
// series for each buffer size, variant and direction. Unfinished variants are left out with a
// message (see usable_variants()). Collective. Throws c10::Error if the model is not the published
// one, or a variant has not core's gradients.
Result compare_on_ranks(const ComparisonSettings& settings, const DeviceContext& device_context) {
  const ComparisonAmount& amount = settings.amount;
  BufferComparison comparison(settings, device_context);
  ResumableRows rows(settings, comparison.header(), device_context);
  const int rank = device_context.group->getRank();
  if (rank == 0) {
    print(kComparedModel, comparison.model());
  }
  Progress progress("compare_ddp, repetitions",
                    static_cast<int>(amount.buffer_sizes.size()) * amount.iterations, rank);
  for (const int buffer_size : amount.buffer_sizes) {
    rows.measure({{"buffer_size", buffer_size}}, progress, amount.iterations,
                 [&] { return comparison.measure(buffer_size, progress); });
  }
  progress.clear_line();
  return rows.finish();
}

constexpr const char* kProgram = "compare_ddp";
constexpr std::int64_t kGpus = 2;  // the published text does not say

struct PublishedCandidate {
  const char* label;
  const char* variant;
  std::int64_t cap_mib;  // for each M (2^20) of the buffer size
  const char* published_name;
};
constexpr PublishedCandidate kCandidates[] = {
    {"core", "Reducer", 1, "DDPOption.DDP_CPP_CORE"},
    {"async", "Python DDP", 4, "DDPOption.PYTHON_DDP_ASYNC_REDUCTION"},
    {"sync", "Python DDP sync", 4, "DDPOption.PYTHON_DDP_SYNC_REDUCTION"},
    {"core, equal bytes", "Reducer", 4, "core, equal bytes"},
    {"stage 03", "bucketed", 4, "stage 03"},
};

// Neither GPUs nor network are named: the constants are relative to a V100, on one link.
PublishedHardware hardware_of(const ClusterFlags& flags) {
  const Calibration fitted = fitted_for(flags, kProgram);
  PublishedHardware hardware = {
      .gpu = known_gpu("V100"),
      .topology = {.gpus_per_node = 1 << 20,
                   .inside = {.beta_ns_per_byte = 1e9 / fitted.constant("link_bytes_per_second")},
                   .algorithm = cluster::AllReduce::kRing},
      .pace = {.forward_efficiency = fitted.constant("forward_efficiency"),
               .backward_efficiency = fitted.constant("backward_efficiency")}};
  apply(flags, hardware);
  return hardware;
}

Parameters parameters_of(const ProfiledModel& model, const ComparisonAmount& amount,
                         const PublishedHardware& hardware) {
  const Parameters name = {{"model", model.profile().name}};
  const Parameters others = {{"batch_size", amount.batch},
                             {"image_size", amount.image},
                             {"iterations", 1},
                             {"discarded", 0},
                             {"rate_gbit", 0},
                             {"latency_us", 0}};
  const ModelSummary summary = summarize_model(model.named_parameters());
  return joined(joined(joined(name, describe(summary)), others), describe(hardware));
}

// compare_ddp at its published scale, in virtual time: "core", "core, equal bytes", and the two
// reductions of the published Python DDP, "async" and "sync"; then "stage 03", with buffers of the
// same size. Series are those of compare_on_ranks(), of one value each. Throws c10::ValueError for
// flags and calibrations that do not fit, c10::NotImplementedError if stage 03 is not written.
Result compare_at_published_scale(const ComparisonSettings& settings) {
  const ComparisonAmount& amount = settings.amount;
  const PublishedHardware hardware = hardware_of(settings.cluster);
  const std::int64_t gpus = single_world(settings.cluster, kGpus);
  const ProfiledModel model(
      resnet_profile(kComparedModel, {.batch = amount.batch, .side = amount.image}));
  variants_on_cluster({"bucketed"}, settings.implementation);
  Result result = {.run = to_cluster_run(settings, kProgram, gpus),
                   .parameters = parameters_of(model, amount, hardware)};
  for (const int buffer_size : amount.buffer_sizes) {
    for (const PublishedCandidate& candidate : kCandidates) {
      const cluster::StepTimes times =
          simulate_step(candidate.variant, model, hardware, gpus,
                        {.cap_bytes = buffer_size * candidate.cap_mib << 20});
      const auto add = [&](const char* direction, std::int64_t ns) {
        result.series.push_back(exact_time(
            {{"buffer_size", buffer_size}, {"variant", candidate.label}, {"direction", direction}},
            in_seconds(ns)));
      };
      add("forward", times.forward_ns);
      add("backward", times.total_ns - times.forward_ns);
    }
  }
  return result;
}

// Prints the published summaries to stdout. All of a variant's iterations take the same time, so
// that of the published statistics only the mean is left.
void print_published_summaries(const Result& result) {
  constexpr std::size_t kOfSize = 2 * std::size(kCandidates);  // series
  for (std::size_t first = 0; first < result.series.size(); first += kOfSize) {
    const auto size = std::get<std::int64_t>(result.series[first].labels[0].second);
    std::printf("=== Summary for buffer_size: %lldM ===\n", static_cast<long long>(size));
    for (const std::size_t direction : {0, 1}) {
      std::printf("DDP: [%-37s%10s%10s\n", direction == 0 ? "forward]" : "backward]", "Mean",
                  "delta%");
      const double core = result.series[first + direction].values.front();
      for (std::size_t i = 0; i < std::size(kCandidates); ++i) {
        const double mean = result.series[first + 2 * i + direction].values.front();
        std::printf("%-43s%10.3f%10.4f\n", kCandidates[i].published_name, 1e3 * mean,
                    100 * (mean / core - 1));
      }
      std::printf("\n");
    }
  }
}

// MAIN

const ComparisonAmount kPublished = {
    .buffer_sizes = {3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                     16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27},
    .batch = 32,
    .image = 224,
    .iterations = 40,
    .discarded = 20};

const std::map<std::string, ComparisonAmount> kPresets = {
    {"quick",
     {.buffer_sizes = {3, 12, 27}, .batch = 2, .image = 32, .iterations = 18, .discarded = 3}},
    {"full", kPublished},
    {"paper", kPublished},
};

std::string in_words(const std::string& buffer_sizes, const ComparisonAmount& amount) {
  std::ostringstream text;
  text << "buffers of " << buffer_sizes << " M elements; batch " << amount.batch << " of "
       << amount.image << "x" << amount.image << " images; " << amount.iterations << " iterations, "
       << amount.discarded << " of them discarded; 2 ranks";
  return text.str();
}

void print_table(const Result& result) {
  std::printf("%-8s%-20s%-10s%12s%10s\n", "buffer", "variant", "direction", "p50 [ms]", "delta%");
  std::map<std::string, double> core;  // by direction; it is each buffer size's first variant
  for (const auto& [labels, unit, values] : result.series) {
    const std::string size = std::to_string(std::get<std::int64_t>(labels[0].second)) + "M";
    const auto& variant = std::get<std::string>(labels[1].second);
    const auto& direction = std::get<std::string>(labels[2].second);
    const double median = percentile(values, 50);
    if (variant == "core") {
      core[direction] = median;
    }
    std::printf("%-8s%-20s%-10s%12.2f%10.2f\n", size.c_str(), variant.c_str(), direction.c_str(),
                1e3 * median, 100 * (median / core[direction] - 1));
  }
}

void run_rank(const RankContext& context, const ComparisonSettings& settings) {
  keep_freed_memory();
  const DeviceContext device_context = make_device_context(settings, context);
  const Result result = compare_on_ranks(settings, device_context);
  if (context.rank == 0) {
    print_table(result);
  }
  save_trace(settings, context, device_context);
}

void compute(const ComparisonSettings& settings) {
  const Result result = compare_at_published_scale(settings);
  print_published_summaries(result);
  save_result(settings, result);
}

void add_flags(CLI::App& line, ComparisonAmount& amount) {
  add_number(line, "--buffer-sizes", amount.buffer_sizes, "In M (2^20) elements, such as 3,24,25");
  add_number(line, "--batch-size", amount.batch, "Samples of each rank");
  add_number(line, "--image-size", amount.image, "Pixels of an image's side", 32);
}

void add_flags(CLI::App& line, ComparisonSettings& settings) {
  add_flags(line, settings.amount);
  add_number(line, "--iterations", settings.amount.iterations, "Of each variant and buffer size");
  add_number(line, "--discard", settings.amount.discarded,
             "How many of them are discarded, the first ones", 0);
  add_choice(line, "--loss", settings.loss, "What forward ends in", {"mse", "cross-entropy"});
  add_choice(line, "--times-of", settings.times_of, "The rank whose times count",
             {"rank0", "slowest"});
  settings.backend = kGlooBackend;
  line.get_option("--backend")
      ->description("What moves tensors; default: gloo, through host memory on GPUs");
  line.add_flag("--broadcast-buffers,!--no-broadcast-buffers", settings.broadcasts_buffers,
                "Whether core broadcasts BatchNorm's buffers before forward; default: it does");
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line(
      "Forward and backward of ResNet-50 over buffer sizes: stage 03 beside c10d::Reducer");
  ComparisonSettings settings, computed;
  settings.amount = chosen(kPresets, argc, argv);
  computed.amount = kPublished;
  ddp::add_flags(line, settings, argc, argv);
  add_flags(line, settings);
  add_resume_flag(line, settings);
  CLI::App& published = add_published(line, computed, computed.cluster, argc, argv);
  add_flags(published, computed.amount);
  const ComparisonAmount& quick = kPresets.at("quick");
  const std::string as_published = in_words("3, 4, 5 ... 27", kPublished);
  describe_presets(line, {.quick = in_words(c10::Join(", ", quick.buffer_sizes), quick),
                          .full = as_published,
                          .paper = as_published + " on 2 GPUs of any model"});
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (published.parsed()) {
    return run_on_cluster([&] { compute(computed); });
  }
  if (const int code = check_preset(line, settings, {.gpus = 2})) {
    return code;
  }
  const ComparisonAmount& amount = settings.amount;
  if (amount.discarded >= amount.iterations) {
    return refuse(line, "--discard: " + std::to_string(amount.discarded) + " of " +
                            std::to_string(amount.iterations) +
                            " iterations leave none to measure; discard fewer");
  }
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
