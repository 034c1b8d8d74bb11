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
// All that is measured. With --preset published it is simulated instead: see published.cpp.
#include <c10/util/StringUtil.h>

#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "ddp/meters/statistics.h"
#include "experiments/compare_ddp/buffer_comparison.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/interleaved.h"
#include "harness/published_cluster.h"
#include "harness/resumable_rows.h"
#include "harness/variants.h"

namespace {

using namespace ddp;

// Negative or empty: the preset's.
struct Amount {
  std::set<int> buffer_sizes;  // in M elements
  ComparisonSize size;
};

Amount published() {
  Amount amount = {.buffer_sizes = {},
                   .size = {.batch = 32, .image = 224, .iterations = 40, .discarded = 20}};
  for (int size = 3; size <= 27; ++size) {
    amount.buffer_sizes.insert(size);
  }
  return amount;
}

const std::map<std::string, Amount> kPresets = {
    {"quick",
     {.buffer_sizes = {3, 12, 27},
      .size = {.batch = 2, .image = 32, .iterations = 18, .discarded = 3}}},
    {"full", published()},
    {"paper", published()},
    {kPublishedPreset, published()},
};

std::string in_words(const std::string& buffer_sizes, const ComparisonSize& size) {
  std::ostringstream text;
  text << "buffers of " << buffer_sizes << " M elements; batch " << size.batch << " of "
       << size.image << "x" << size.image << " images; " << size.iterations << " iterations, "
       << size.discarded << " of them discarded; 2 ranks";
  return text.str();
}

struct Settings : BenchmarkOptions {
  Amount amount;
  Procedure procedure;
  ClusterFlags cluster;
};

// Everything that must agree between a run and the one that it resumes.
Result header(const Settings& settings, const BufferComparison& comparison,
              const ProcessGroupPtr& group) {
  const auto& [buffer_sizes, size] = settings.amount;
  const Parameters model = {{"model", BufferComparison::kModel}};
  const Parameters others = {
      {"batch_size", size.batch},
      {"image_size", size.image},
      {"iterations", size.iterations},
      {"discarded", size.discarded},
      {"buffer_sizes", c10::Join(", ", buffer_sizes)},
      {"variants", c10::Join("; ", comparison.variants())},
      {"first_bucket_bytes", VariantOptions().first_bucket_bytes},
      {"loss", settings.procedure.loss},
      {"times_of", settings.procedure.times_of},
      {"broadcasts_buffers", std::int64_t{settings.procedure.broadcasts_buffers}},
      {"rate_gbit", settings.rate_gbit},
      {"latency_us", settings.latency_us}};
  return {.run = to_run(settings, "compare_ddp", group),
          .parameters = joined(joined(model, describe(comparison.model())), others)};
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

void run_rank(const RankContext& context, const Settings& settings) {
  keep_freed_memory();
  const auto& [buffer_sizes, size] = settings.amount;
  const DeviceContext device_context = make_device_context(settings, context);
  BufferComparison comparison(settings, size, settings.procedure, device_context);
  ResumableRows rows(settings, header(settings, comparison, device_context.group), device_context);
  Progress progress("compare_ddp, repetitions",
                    static_cast<int>(buffer_sizes.size()) * size.iterations, context.rank);
  if (context.rank == 0) {
    print(BufferComparison::kModel, comparison.model());
  }
  for (const int buffer_size : buffer_sizes) {
    const Parameters labels = {{"buffer_size", buffer_size}};
    if (!rows.has(labels)) {
      rows.add(labels, comparison.measure(buffer_size, progress));
    } else {
      progress.skip(size.iterations);
    }
  }
  progress.clear_line();
  const Result result = rows.finish();
  if (context.rank == 0) {
    print_table(result);
  }
  save_trace(settings, context, device_context);
}

void compute(const Settings& settings) {
  const auto& [buffer_sizes, size] = settings.amount;
  const Result result = compare_at_published_scale(settings, size, buffer_sizes, settings.cluster);
  print_published_summaries(result);
  save_result(settings, result);
}

void add_flags(CLI::App& line, Amount& amount) {
  ComparisonSize& size = amount.size;
  add_number_of_preset(line, "--buffer-sizes", amount.buffer_sizes,
                       "In M (2^20) elements, such as 3,24,25");
  add_number_of_preset(line, "--batch-size", size.batch, "Samples of each rank");
  add_number_of_preset(line, "--image-size", size.image, "Pixels of an image's side", 32);
  add_number_of_preset(line, "--iterations", size.iterations, "Of each variant and buffer size");
  add_number_of_preset(line, "--discard", size.discarded,
                       "How many of them are discarded, the first ones", 0);
}

// They say how to measure, so that they mean nothing to the simulated cluster.
const std::vector<std::string> kMeasuringFlags = {
    "--iterations", "--discard",          "--trace", "--loss", "--times-of",
    "--backend",    "--broadcast-buffers"};

void add_flags(CLI::App& line, Settings& settings) {
  Procedure& procedure = settings.procedure;
  add_choice(line, "--loss", procedure.loss, "What forward ends in", {"mse", "cross-entropy"});
  add_choice(line, "--times-of", procedure.times_of, "The rank whose times count",
             {"rank0", "slowest"});
  settings.backend = kGlooBackend;
  line.get_option("--backend")
      ->description("What moves tensors; default: gloo, through host memory on GPUs");
  line.add_flag("--broadcast-buffers,!--no-broadcast-buffers", procedure.broadcasts_buffers,
                "Whether core broadcasts BatchNorm's buffers before forward; default: it does");
}

void apply_preset(Amount& amount, const Amount& preset) {
  if (amount.buffer_sizes.empty()) {
    amount.buffer_sizes = preset.buffer_sizes;
  }
  for (int ComparisonSize::*field : {&ComparisonSize::batch, &ComparisonSize::image,
                                     &ComparisonSize::iterations, &ComparisonSize::discarded}) {
    if (amount.size.*field < 0) {
      amount.size.*field = preset.size.*field;
    }
  }
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line(
      "Forward and backward of ResNet-50 over buffer sizes: stage 03 beside c10d::Reducer");
  Settings settings;
  add_flags(line, settings, argc, argv);
  add_flags(line, settings.amount);
  add_flags(line, settings);
  add_resume_flag(line, settings);
  add_flags(line, settings.cluster, settings);
  const Amount& quick = kPresets.at("quick");
  const std::string as_published = in_words("3, 4, 5 ... 27", published().size);
  describe_presets(line,
                   {.quick = in_words(c10::Join(", ", quick.buffer_sizes), quick.size),
                    .full = as_published,
                    .paper = as_published + " on 2 GPUs of any model",
                    .published = "the same, computed for the published hardware with the "
                                 "stage's code on a simulated cluster: seconds, without a GPU"});
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (const std::string mistake = misplaced_flags(line, settings, kMeasuringFlags);
      !mistake.empty()) {
    return refuse(line, mistake);
  }
  if (const int code = check_preset(line, settings, {.gpus = 2})) {
    return code;
  }
  apply_preset(settings.amount, kPresets.at(settings.preset));
  const ComparisonSize& size = settings.amount.size;
  if (settings.preset == kPublishedPreset) {
    return run_on_cluster([&] { compute(settings); });
  }
  if (size.discarded >= size.iterations) {
    return refuse(line, "--discard: " + std::to_string(size.discarded) + " of " +
                            std::to_string(size.iterations) +
                            " iterations leave none to measure; discard fewer");
  }
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
